//! The path of distinct features to a node, with the weights of subsets.

/// A feature on the path.
#[derive(Debug, Clone, Copy)]
pub(super) struct PathElement {
    pub(super) feature: usize,
    /// The share of the training rows that go on along the path if the feature is unknown.
    pub(super) zero: f64,
    /// 1 if the explained row goes on along the path, otherwise 0.
    pub(super) one: f64,
    /// The weight of the subsets with as many known features as the index of this element. It does not belong to the
    /// feature.
    pub(super) weight: f64,
}

impl PathElement {
    /// What stands before the first feature.
    pub(super) const ROOT: Self = Self { feature: usize::MAX, zero: 1.0, one: 1.0, weight: 0.0 };
}

/// A path at the end of a stack.
pub(super) struct Path<'s> {
    stack: &'s mut Vec<PathElement>,
    start: usize,
}

impl<'s> Path<'s> {
    /// The path that is on `stack` from `start` on.
    pub(super) fn new(stack: &'s mut Vec<PathElement>, start: usize) -> Self {
        Self { stack, start }
    }

    pub(super) fn elements(&self) -> &[PathElement] {
        &self.stack[self.start..]
    }

    /// Adds a feature at the end.
    pub(super) fn extend(&mut self, element: PathElement) {
        let depth = self.stack.len() - self.start;
        let weight = if depth == 0 { 1.0 } else { 0.0 };
        self.stack.push(PathElement { weight, ..element });
        let elements = &mut self.stack[self.start..];
        let length = real(depth + 1);
        for i in (0..depth).rev() {
            let known = elements[i].weight;
            elements[i + 1].weight += element.one * known * real(i + 1) / length;
            elements[i].weight = element.zero * known * real(depth - i) / length;
        }
    }

    /// Takes `feature` out of the path, and returns its element. None if the path does not have it.
    pub(super) fn remove(&mut self, feature: usize) -> Option<PathElement> {
        let elements = &mut self.stack[self.start..];
        let index = elements.iter().skip(1).position(|element| element.feature == feature)? + 1;
        let PathElement { zero, one, .. } = elements[index];
        let depth = elements.len() - 1;
        let length = real(depth + 1);
        let mut next = elements[depth].weight;
        for i in (0..depth).rev() {
            if one == 0.0 {
                elements[i].weight *= length / (zero * real(depth - i));
            } else {
                let known = elements[i].weight;
                elements[i].weight = next * length / (real(i + 1) * one);
                next = known - elements[i].weight * zero * real(depth - i) / length;
            }
        }
        for i in index..depth {
            elements[i] = PathElement { weight: elements[i].weight, ..elements[i + 1] };
        }
        self.stack.pop();
        Some(PathElement { feature, zero, one, weight: 0.0 })
    }

    /// The sum of the weights that the path would have without the element at `index`.
    pub(super) fn sum_without(&self, index: usize) -> f64 {
        let elements = self.elements();
        let PathElement { zero, one, .. } = elements[index];
        let depth = elements.len() - 1;
        let length = real(depth + 1);
        let mut next = elements[depth].weight;
        let mut sum = 0.0;
        for i in (0..depth).rev() {
            if one == 0.0 {
                sum += elements[i].weight * length / (zero * real(depth - i));
            } else {
                let weight = next * length / (real(i + 1) * one);
                sum += weight;
                next = elements[i].weight - weight * zero * real(depth - i) / length;
            }
        }
        sum
    }
}

fn real(count: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a path has at most MAX_SHAP_DEPTH elements")]
    let real = count as f64;
    real
}
