//! The two forms of a node.

/// The bit of a wide node's `feature` that says that a missing value counts as one for which the test holds.
pub(crate) const MISSING_IS_TRUE: u32 = 1 << 31;
/// The bit that says that the test is about a set of categories.
pub(crate) const CATEGORICAL: u32 = 1 << 30;
/// The bit that says that zero is a missing value.
pub(crate) const ZERO_IS_MISSING: u32 = 1 << 29;
/// The bits that are the feature.
const FEATURE_MASK: u32 = ZERO_IS_MISSING - 1;

/// The bit of a narrow node's `feature` for missing values.
const NARROW_MISSING_IS_TRUE: u16 = 1 << 15;

/// A form of nodes.
pub(crate) trait NodeForm: Copy {
    fn feature(self) -> usize;
    fn missing_is_true(self) -> bool;
    fn threshold(self) -> f32;
    fn distance(self) -> u32;
}

/// A node that any test fits in.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct WideNode {
    /// The largest value for which the test holds. The bits of the index of the set, if the test is categorical.
    pub(crate) threshold: f32,
    /// The feature and three flags.
    pub(crate) feature: u32,
    /// How many places after this node the child stands to which the test leads if it holds. The other child follows
    /// it.
    pub(crate) distance: u32,
}

/// A node of 8 bytes. It is worth a second form, because a forest that fits a cache is several times as fast.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct NarrowNode {
    pub(crate) threshold: f32,
    /// The feature and the flag for missing values.
    feature: u16,
    distance: u16,
}

impl WideNode {
    /// A node that leads every value to itself.
    pub(crate) const LEAF: Self = Self { threshold: f32::INFINITY, feature: MISSING_IS_TRUE, distance: 0 };

    pub(crate) fn is_categorical(self) -> bool {
        self.feature & CATEGORICAL != 0
    }

    pub(crate) fn zero_is_missing(self) -> bool {
        self.feature & ZERO_IS_MISSING != 0
    }

    pub(crate) fn is_leaf(self) -> bool {
        self.distance == 0
    }

    /// The same node in the narrow form, if it fits.
    pub(crate) fn narrow(self) -> Option<NarrowNode> {
        if self.feature & (CATEGORICAL | ZERO_IS_MISSING) != 0 {
            return None;
        }
        let feature =
            u16::try_from(self.feature & FEATURE_MASK).ok().filter(|f| f & NARROW_MISSING_IS_TRUE == 0)?;
        let flag = if self.feature & MISSING_IS_TRUE == 0 { 0 } else { NARROW_MISSING_IS_TRUE };
        let distance = u16::try_from(self.distance).ok()?;
        Some(NarrowNode { threshold: self.threshold, feature: feature | flag, distance })
    }
}

impl From<NarrowNode> for WideNode {
    fn from(node: NarrowNode) -> Self {
        let flag = if node.missing_is_true() { MISSING_IS_TRUE } else { 0 };
        let feature = u32::from(node.feature & !NARROW_MISSING_IS_TRUE) | flag;
        Self { threshold: node.threshold, feature, distance: u32::from(node.distance) }
    }
}

impl NodeForm for NarrowNode {
    #[inline(always)]
    fn feature(self) -> usize {
        usize::from(self.feature & !NARROW_MISSING_IS_TRUE)
    }

    #[inline(always)]
    fn missing_is_true(self) -> bool {
        self.feature & NARROW_MISSING_IS_TRUE != 0
    }

    #[inline(always)]
    fn threshold(self) -> f32 {
        self.threshold
    }

    #[inline(always)]
    fn distance(self) -> u32 {
        u32::from(self.distance)
    }
}

impl NodeForm for WideNode {
    #[inline(always)]
    fn feature(self) -> usize {
        (self.feature & FEATURE_MASK) as usize
    }

    #[inline(always)]
    fn missing_is_true(self) -> bool {
        self.feature & MISSING_IS_TRUE != 0
    }

    #[inline(always)]
    fn threshold(self) -> f32 {
        self.threshold
    }

    #[inline(always)]
    fn distance(self) -> u32 {
        self.distance
    }
}
