//! The walk through all trees.

use crate::evaluate::next_place;
use crate::fault::ForestError;
use crate::layout::{Layout, LeafValues, NodeForm, Nodes, PlacedTree, WideNode};
use crate::model::Margins;
use crate::shap::path::{Path, PathElement};

/// What explains predictions of a forest.
pub(crate) struct Explanation<'f> {
    pub(crate) layout: &'f Layout,
    pub(crate) covers: &'f [f32],
    pub(crate) features: usize,
}

/// A node that the walk has still to visit.
struct Visit {
    place: u32,
    /// Where the path of the parent ends on the stack of paths, and where it begins.
    parent: std::ops::Range<usize>,
    /// What the edge to the node adds to the path. None at the root.
    edge: Option<PathElement>,
}

/// A leaf, and the share of the training rows that has come to it.
struct Leaf {
    place: u32,
    share: f64,
}

impl Explanation<'_> {
    /// Puts the contributions of all trees for `row` into `contributions`.
    pub(crate) fn explain(
        &self,
        row: &[f32],
        margins: &Margins,
        contributions: &mut [f32],
    ) -> Result<(), ForestError> {
        let width = self.features + 1;
        let mut sums = vec![0.0f64; contributions.len()];
        let mut elements = Vec::new();
        for tree in &self.layout.trees {
            self.explain_tree(tree, row, &mut elements, &mut sums)?;
        }
        for (output, sums) in sums.chunks_exact_mut(width).enumerate() {
            if let Some(divisors) = &margins.divisors {
                sums.iter_mut().for_each(|sum| *sum /= divisors[output]);
            }
            sums[self.features] += margins.base[output];
        }
        for (contribution, sum) in contributions.iter_mut().zip(sums) {
            #[expect(clippy::cast_possible_truncation, reason = "the caller asks for 32 bits")]
            let single = sum as f32;
            *contribution = single;
        }
        Ok(())
    }

    fn explain_tree(
        &self,
        tree: &PlacedTree,
        row: &[f32],
        elements: &mut Vec<PathElement>,
        sums: &mut [f64],
    ) -> Result<(), ForestError> {
        let root_cover = self.cover(tree.root);
        if tree.depth > 0 && (root_cover <= 0.0 || root_cover.is_nan()) {
            return Err(ForestError::NoCovers("the file does not have them"));
        }
        let mut visits = vec![Visit { place: tree.root, parent: 0..0, edge: None }];
        while let Some(Visit { place, parent, edge }) = visits.pop() {
            let node = self.node(place);
            let start = parent.end;
            elements.truncate(start);
            elements.extend_from_within(parent);
            let mut path = Path::new(elements, start);
            path.extend(edge.unwrap_or(PathElement::ROOT));
            if node.is_leaf() {
                let share = if tree.depth == 0 { 1.0 } else { self.cover(place) / root_cover };
                self.add_leaf(tree, &Leaf { place, share }, &path, sums);
                continue;
            }
            let hot = next_place(node, place, row[node.feature()], &self.layout.category_words);
            let feature = node.feature();
            let first = place + node.distance();
            let cold = if hot == first { first + 1 } else { first };
            let cover = self.cover(place);
            let earlier =
                path.remove(feature).unwrap_or(PathElement { feature, zero: 1.0, one: 1.0, weight: 0.0 });
            let end = elements.len();
            for (child, one) in [(cold, 0.0), (hot, earlier.one)] {
                let zero = if cover > 0.0 { earlier.zero * self.cover(child) / cover } else { 0.0 };
                // Neither the row nor any row of the training goes this way.
                if zero == 0.0 && one == 0.0 {
                    continue;
                }
                let edge = Some(PathElement { feature, zero, one, weight: 0.0 });
                visits.push(Visit { place: child, parent: start..end, edge });
            }
        }
        Ok(())
    }

    /// Adds what the values of a leaf at the end of `path` contribute.
    fn add_leaf(&self, tree: &PlacedTree, leaf: &Leaf, path: &Path<'_>, sums: &mut [f64]) {
        let width = self.features + 1;
        for k in 0..tree.outputs.count {
            let value = self.leaf_value(leaf.place, k);
            let sums = &mut sums[(tree.outputs.first + k * tree.outputs.stride) * width..][..width];
            sums[self.features] += leaf.share * value;
            for (index, element) in path.elements().iter().enumerate().skip(1) {
                sums[element.feature] += path.sum_without(index) * (element.one - element.zero) * value;
            }
        }
    }

    fn cover(&self, place: u32) -> f64 {
        f64::from(self.covers[place as usize])
    }

    fn node(&self, place: u32) -> WideNode {
        match &self.layout.nodes {
            Nodes::Narrow(nodes) => nodes[place as usize].into(),
            Nodes::Wide(nodes) | Nodes::Mixed(nodes) => nodes[place as usize],
        }
    }

    fn leaf_value(&self, place: u32, k: usize) -> f64 {
        let leaves = &self.layout.leaves;
        let index =
            leaves.first_values.get(place as usize).map_or(place as usize, |&first| first as usize + k);
        match &leaves.values {
            LeafValues::Single(values) => f64::from(values[index]),
            LeafValues::Double(values) => values[index],
        }
    }
}
