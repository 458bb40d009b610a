//! Adds the leaves that rows come to.

use crate::evaluate::decision::{Missing, Mixed, Present, TestDecision};
use crate::evaluate::descent::Descent;
use crate::layout::{LANES, Layout, NarrowNode, NodeForm, Nodes, PlacedTree, WideNode};
use crate::real::Real;

/// Rows whose sums are made together: their values and the nodes of a tree share the nearest cache.
const BLOCK: usize = 64;

/// Memory that predictions use again. One thread needs one, for any forests.
#[derive(Debug, Default)]
pub struct PredictionScratch {
    pub(crate) single: Vec<f32>,
    pub(crate) double: Vec<f64>,
}

/// Sums that a forest begins with, and how its leaves are added.
pub(crate) struct Evaluation<'f, R> {
    pub(crate) layout: &'f Layout,
    pub(crate) features: usize,
    pub(crate) outputs: usize,
    pub(crate) values: &'f [R],
}

impl<R: Real> Evaluation<'_, R> {
    /// Adds the leaves of all `rows` to `sums`, which has a sum for each output of each row.
    pub(crate) fn add(&self, rows: &[f32], sums: &mut [R]) {
        debug_assert_eq!(rows.len() / self.features.max(1), sums.len() / self.outputs);
        let row_blocks = rows.chunks(BLOCK * self.features);
        for (rows, sums) in row_blocks.zip(sums.chunks_mut(BLOCK * self.outputs)) {
            // A look at all values costs less than a look at the values that tests meet.
            let has_missing = rows.iter().fold(false, |has, value| has | value.is_nan());
            match (&self.layout.nodes, has_missing) {
                (Nodes::Narrow(nodes), false) => self.add_block::<NarrowNode, Present>(nodes, rows, sums),
                (Nodes::Narrow(nodes), true) => self.add_block::<NarrowNode, Missing>(nodes, rows, sums),
                (Nodes::Wide(nodes), false) => self.add_block::<WideNode, Present>(nodes, rows, sums),
                (Nodes::Wide(nodes), true) => self.add_block::<WideNode, Missing>(nodes, rows, sums),
                (Nodes::Mixed(nodes), _) => self.add_block::<WideNode, Mixed>(nodes, rows, sums),
            }
        }
    }

    fn add_block<N: NodeForm, D: TestDecision<N>>(&self, nodes: &[N], rows: &[f32], sums: &mut [R]) {
        let descent = Descent::<N, D>::new(nodes, &self.layout.category_words);
        let full = sums.len() / self.outputs / LANES * LANES;
        let (lane_rows, other_rows) = rows.split_at(full * self.features);
        let (lane_sums, other_sums) = sums.split_at_mut(full * self.outputs);
        if full > 0 {
            self.add_lanes(&descent, lane_rows, lane_sums);
        }
        for (row, sums) in other_rows.chunks(self.features).zip(other_sums.chunks_mut(self.outputs)) {
            self.add_row(&descent, row, sums);
        }
    }

    /// Adds the leaves of one row.
    fn add_row<N: NodeForm, D: TestDecision<N>>(&self, descent: &Descent<N, D>, row: &[f32], sums: &mut [R]) {
        let mut groups = self.layout.trees.chunks_exact(LANES);
        for group in groups.by_ref() {
            let mut places = [0; LANES];
            let mut depth = 0;
            for (place, tree) in places.iter_mut().zip(group) {
                *place = tree.root;
                depth = depth.max(tree.depth);
            }
            let leaves = descent.descend(places, depth, |_, feature| row[feature]);
            for (tree, leaf) in group.iter().zip(leaves) {
                self.add_leaf(tree, leaf, sums);
            }
        }
        for tree in groups.remainder() {
            let [leaf] = descent.descend([tree.root], tree.depth, |_, feature| row[feature]);
            self.add_leaf(tree, leaf, sums);
        }
    }

    /// Adds the leaves of rows whose number is a multiple of [`LANES`].
    fn add_lanes<N: NodeForm, D: TestDecision<N>>(
        &self,
        descent: &Descent<N, D>,
        rows: &[f32],
        sums: &mut [R],
    ) {
        for tree in &self.layout.trees {
            let lane_rows = rows.chunks_exact(LANES * self.features);
            for (rows, sums) in lane_rows.zip(sums.chunks_exact_mut(LANES * self.outputs)) {
                let leaves = descent.descend([tree.root; LANES], tree.depth, |lane, feature| {
                    rows[lane * self.features + feature]
                });
                for (sums, leaf) in sums.chunks_exact_mut(self.outputs).zip(leaves) {
                    self.add_leaf(tree, leaf, sums);
                }
            }
        }
    }

    #[inline(always)]
    fn add_leaf(&self, tree: &PlacedTree, leaf: u32, sums: &mut [R]) {
        let leaf = leaf as usize;
        if self.layout.leaves.first_values.is_empty() {
            sums[tree.outputs.first] += self.values[leaf];
            return;
        }
        let first = self.layout.leaves.first_values[leaf] as usize;
        let values = &self.values[first..first + tree.outputs.count];
        for (sum, &value) in sums[tree.outputs.first..].iter_mut().step_by(tree.outputs.stride).zip(values) {
            *sum += value;
        }
    }
}
