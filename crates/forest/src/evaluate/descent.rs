//! The way from roots to leaves.

use std::marker::PhantomData;

use crate::evaluate::decision::{Mixed, TestDecision};
use crate::layout::{NodeForm, WideNode};

/// The depth from which on it pays to look whether all lanes have come to leaves.
const SHALLOW: u32 = 8;

/// The nodes of a forest, and the sets of its categorical tests.
pub(crate) struct Descent<'f, N, D> {
    nodes: &'f [N],
    category_words: &'f [u32],
    decision: PhantomData<D>,
}

impl<'f, N: NodeForm, D: TestDecision<N>> Descent<'f, N, D> {
    pub(crate) fn new(nodes: &'f [N], category_words: &'f [u32]) -> Self {
        Self { nodes, category_words, decision: PhantomData }
    }

    /// Makes `depth` steps from each of `places`. `value` gives the value of a feature for a lane.
    #[inline(always)]
    pub(crate) fn descend<const L: usize>(
        &self,
        mut places: [u32; L],
        depth: u32,
        value: impl Fn(usize, usize) -> f32,
    ) -> [u32; L] {
        let mut steps = depth;
        // Shallow trees have most of their leaves at the same depth.
        if depth > SHALLOW {
            while steps >= 2 {
                self.step(&mut places, &value);
                // A node at a distance of zero is a leaf.
                if self.step(&mut places, &value) == 0 {
                    return places;
                }
                steps -= 2;
            }
        }
        for _ in 0..steps {
            self.step(&mut places, &value);
        }
        places
    }

    /// Makes a step from each of `places`. Returns zero, if all of them are leaves.
    #[inline(always)]
    fn step<const L: usize>(&self, places: &mut [u32; L], value: &impl Fn(usize, usize) -> f32) -> u32 {
        let mut distances = 0;
        for (lane, place) in places.iter_mut().enumerate() {
            let node = self.nodes[*place as usize];
            distances |= node.distance();
            *place = self.next(node, *place, value(lane, node.feature()));
        }
        distances
    }

    #[inline(always)]
    fn next(&self, node: N, place: u32, value: f32) -> u32 {
        place + node.distance() + u32::from(!D::holds(node, value, self.category_words))
    }
}

/// The place to which a value of the node's feature leads from `place`.
pub(crate) fn next_place(node: WideNode, place: u32, value: f32, category_words: &[u32]) -> u32 {
    Descent::<WideNode, Mixed>::new(&[], category_words).next(node, place, value)
}
