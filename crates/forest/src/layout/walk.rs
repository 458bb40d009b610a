//! The walk that proves that a tree is one: breadth first, each node once.

use crate::limits::MAX_DEPTH;
use crate::tree::Split;

/// A rule that a node or its tree breaks.
pub(super) enum BrokenTree {
    Node(u32, String),
    Tree(String),
}

/// A node that the walk has met, and how many tests lead to it.
#[derive(Clone, Copy)]
pub(super) struct MetNode {
    pub(super) node: u32,
    pub(super) depth: u32,
}

/// The nodes that the walk has met, in the order in which they stand in the layout.
pub(super) struct TreeWalk {
    met: Vec<MetNode>,
    is_met: Vec<bool>,
    next: usize,
}

impl TreeWalk {
    /// A walk through a tree of `nodes` nodes, which are at least one.
    pub(super) fn new(nodes: usize) -> Self {
        let mut is_met = vec![false; nodes];
        is_met[0] = true;
        Self { met: vec![MetNode { node: 0, depth: 0 }], is_met, next: 0 }
    }

    /// The next node.
    pub(super) fn next(&mut self) -> Option<MetNode> {
        let met = self.met.get(self.next).copied();
        self.next += 1;
        met
    }

    /// Meets the children of `parent`, which is the last that `next` has given. Returns how many places after it they
    /// stand.
    pub(super) fn meet_children(&mut self, parent: MetNode, split: &Split) -> Result<u32, BrokenTree> {
        let MetNode { node, depth } = parent;
        if depth as usize >= MAX_DEPTH {
            return Err(BrokenTree::Node(node, format!("its depth must be at most {MAX_DEPTH}")));
        }
        let distance = self.met.len() + 1 - self.next;
        for child in [split.on_true, split.on_false] {
            match self.is_met.get_mut(child as usize) {
                Some(is_met @ false) => *is_met = true,
                Some(true) => {
                    return Err(BrokenTree::Node(child, "it must be the child of one node".to_owned()));
                }
                None => return Err(BrokenTree::Node(node, format!("its child {child} must be a node"))),
            }
            self.met.push(MetNode { node: child, depth: depth + 1 });
        }
        Ok(u32::try_from(distance).expect("MAX_NODES is less than 2^32"))
    }

    /// The depth of the deepest node so far.
    pub(super) fn depth(&self) -> u32 {
        self.met.last().map_or(0, |last| last.depth)
    }
}
