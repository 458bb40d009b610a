//! Writes pixels as the bytes of the output tensor: its order of dims, its datatype, its normalisation.

/// The place of the channels among the dims of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChannelOrder {
    /// `[height, width, channels]`.
    Last,
    /// `[channels, height, width]`.
    First,
}

/// The size and the order of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PictureLayout {
    pub(crate) height: u32,
    pub(crate) width: u32,
    /// 3 for red, green and blue, 1 for grey.
    pub(crate) channels: usize,
    pub(crate) order: ChannelOrder,
}

impl PictureLayout {
    /// The layout that dims describe. If both ends could be the channels, the last one is.
    pub(crate) fn of(dims: &[i64]) -> Option<Self> {
        let &[first, middle, last] = dims else { return None };
        let (height, width, channels, order) = match (first, last) {
            (_, 1 | 3) => (first, middle, last, ChannelOrder::Last),
            (1 | 3, _) => (middle, last, first, ChannelOrder::First),
            _ => return None,
        };
        let side = |dim: i64| u32::try_from(dim).ok().filter(|&side| side > 0);
        Some(Self { height: side(height)?, width: side(width)?, channels: channels.try_into().ok()?, order })
    }
}

/// What becomes of a value of a pixel.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PixelValues {
    /// UINT8: the value itself.
    Bytes,
    /// FP32: for each channel, the number for each of the 256 values.
    Floats(Vec<[f32; 256]>),
}

impl PixelValues {
    /// FP32: `(value * scale - mean) / std`, with a mean and a standard deviation for each channel.
    pub(crate) fn normalised(scale: f64, mean: &[f64], std: &[f64]) -> Self {
        let channel = |(mean, std): (&f64, &f64)| {
            let mut table = [0.0; 256];
            for (value, number) in (0_u8..=255).zip(&mut table) {
                #[expect(clippy::cast_possible_truncation, reason = "the output has single precision")]
                let rounded = ((f64::from(value) * scale - mean) / std) as f32;
                *number = rounded;
            }
            table
        };
        Self::Floats(mean.iter().zip(std).map(channel).collect())
    }

    /// Appends the pixels of one picture to the bytes of a tensor. `samples` are its values row by row, the channels of
    /// a pixel side by side.
    pub(crate) fn append(&self, layout: PictureLayout, samples: &[u8], tensor: &mut Vec<u8>) {
        debug_assert_eq!(
            samples.len() as u64,
            u64::from(layout.height) * u64::from(layout.width) * layout.channels as u64,
            "the picture was scaled to the size of the output"
        );
        match layout.order {
            ChannelOrder::Last => {
                for pixel in samples.chunks_exact(layout.channels) {
                    for (channel, &value) in pixel.iter().enumerate() {
                        self.push(channel, value, tensor);
                    }
                }
            }
            ChannelOrder::First => {
                for channel in 0..layout.channels {
                    for &value in samples.iter().skip(channel).step_by(layout.channels) {
                        self.push(channel, value, tensor);
                    }
                }
            }
        }
    }

    #[inline]
    fn push(&self, channel: usize, value: u8, tensor: &mut Vec<u8>) {
        match self {
            Self::Bytes => tensor.push(value),
            Self::Floats(tables) => {
                tensor.extend_from_slice(&tables[channel][usize::from(value)].to_le_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(dims: &[i64]) -> Option<(u32, u32, usize, ChannelOrder)> {
        PictureLayout::of(dims).map(|it| (it.height, it.width, it.channels, it.order))
    }

    #[test]
    fn the_place_of_the_channels_tells_the_order() {
        assert_eq!(layout(&[4, 5, 3]), Some((4, 5, 3, ChannelOrder::Last)));
        assert_eq!(layout(&[3, 4, 5]), Some((4, 5, 3, ChannelOrder::First)));
        assert_eq!(layout(&[4, 5, 1]), Some((4, 5, 1, ChannelOrder::Last)));
        assert_eq!(layout(&[1, 4, 5]), Some((4, 5, 1, ChannelOrder::First)));
    }

    #[test]
    fn the_last_dim_is_the_channels_if_both_ends_could_be() {
        assert_eq!(layout(&[1, 5, 3]), Some((1, 5, 3, ChannelOrder::Last)));
        assert_eq!(layout(&[3, 5, 1]), Some((3, 5, 1, ChannelOrder::Last)));
    }

    #[test]
    fn other_dims_are_no_layout() {
        for dims in
            [&[4, 5][..], &[4, 5, 4], &[-1, 5, 3], &[3, -1, 4], &[4, 0, 3], &[1 << 40, 4, 3], &[2, 4, 5, 3]]
        {
            assert_eq!(layout(dims), None, "{dims:?}");
        }
    }

    #[test]
    fn each_channel_has_its_mean_and_its_deviation() {
        let PixelValues::Floats(tables) = PixelValues::normalised(0.5, &[0.0, 10.0, 20.0], &[1.0, 2.0, -4.0])
        else {
            panic!("floats are wanted")
        };
        assert_eq!([tables[0][100], tables[1][100], tables[2][100]], [50.0, 20.0, -7.5]);
        assert_eq!([tables[0][255], tables[0][0]], [127.5, 0.0]);
    }
}
