//! Source files, and which of them use which.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Files, as of one target, and the arrows between them.
#[derive(Debug, Default)]
pub(super) struct SourceGraph {
    pub(super) files: Vec<PathBuf>,
    /// For each file, those that it uses.
    pub(super) arrows: Vec<BTreeSet<usize>>,
    /// For each file, the one that declares it. `None`: the root.
    pub(super) parents: Vec<Option<usize>>,
    /// For each file, whether it does more than declare modules and import.
    pub(super) defines: Vec<bool>,
}

impl SourceGraph {
    /// Whether a file is a part of the module of another one.
    pub(super) fn is_below(&self, file: usize, top: usize) -> bool {
        std::iter::successors(self.parents[file], |parent| self.parents[*parent]).any(|above| above == top)
    }

    /// The sets of files that use each other in circles, in the order of their names.
    pub(super) fn circles(&self) -> Vec<Vec<&Path>> {
        let mut search = CircleSearch::of(self);
        for file in 0..self.files.len() {
            if search.order[file].is_none() {
                search.visit(file);
            }
        }
        let names = |circle: Vec<usize>| {
            let mut names: Vec<_> = circle.into_iter().map(|file| self.files[file].as_path()).collect();
            names.sort_unstable();
            names
        };
        let mut circles: Vec<_> = search.found.into_iter().map(names).collect();
        circles.sort_unstable();
        circles
    }
}

/// Tarjan's search for strongly connected parts.
struct CircleSearch<'g> {
    graph: &'g SourceGraph,
    order: Vec<Option<usize>>,
    lowest: Vec<usize>,
    stack: Vec<usize>,
    visited: usize,
    found: Vec<Vec<usize>>,
}

impl<'g> CircleSearch<'g> {
    fn of(graph: &'g SourceGraph) -> Self {
        let count = graph.files.len();
        Self {
            graph,
            order: vec![None; count],
            lowest: vec![0; count],
            stack: Vec::new(),
            visited: 0,
            found: Vec::new(),
        }
    }

    /// Recursion is as deep as the longest chain of files.
    fn visit(&mut self, file: usize) {
        let order = self.visited;
        self.visited += 1;
        self.order[file] = Some(order);
        self.lowest[file] = order;
        self.stack.push(file);
        for &used in &self.graph.arrows[file] {
            match self.order[used] {
                None => {
                    self.visit(used);
                    self.lowest[file] = self.lowest[file].min(self.lowest[used]);
                }
                Some(order) if self.stack.contains(&used) => {
                    self.lowest[file] = self.lowest[file].min(order);
                }
                Some(_) => {}
            }
        }
        if self.lowest[file] == order {
            let begin = self.stack.iter().rposition(|other| *other == file).unwrap_or(0);
            let part = self.stack.split_off(begin);
            if part.len() > 1 {
                self.found.push(part);
            }
        }
    }
}
