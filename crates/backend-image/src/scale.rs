//! Gives a picture the size of the output.
//!
//! The filter is linear, and wider when it shrinks: each source pixel then has its part in the result.
use image::{
    GenericImageView, ImageBuffer, Pixel,
    imageops::{self, FilterType},
};

use crate::parameters::ResizeMode;

/// Pixels of eight bits per channel.
type Pixels<P> = ImageBuffer<P, Vec<u8>>;

/// The picture with the given size. Needs 16 bytes for each pixel of the larger of both pictures, besides the result.
pub(crate) fn scale<P: Pixel<Subpixel = u8> + 'static>(
    picture: Pixels<P>,
    mode: ResizeMode,
    width: u32,
    height: u32,
) -> Pixels<P> {
    if picture.dimensions() == (width, height) {
        return picture;
    }
    match mode {
        ResizeMode::Stretch => stretch(&picture, width, height),
        ResizeMode::Crop => {
            // The part is cut out first: a scaled picture of extreme proportions would be larger than any memory.
            let (cut_width, cut_height) = inside(picture.dimensions(), (width, height));
            let x = (picture.width() - cut_width) / 2;
            let y = (picture.height() - cut_height) / 2;
            let part = imageops::crop_imm(&picture, x, y, cut_width, cut_height);
            stretch(&*part, width, height)
        }
        ResizeMode::Pad => {
            let (scaled_width, scaled_height) = inside((width, height), picture.dimensions());
            let scaled = stretch(&picture, scaled_width, scaled_height);
            let mut padded = Pixels::new(width, height);
            let x = (width - scaled_width) / 2;
            let y = (height - scaled_height) / 2;
            imageops::replace(&mut padded, &scaled, x.into(), y.into());
            padded
        }
    }
}

/// The largest size inside `frame` with the proportions of `shape`, at least one pixel in both directions.
fn inside(frame: (u32, u32), shape: (u32, u32)) -> (u32, u32) {
    let [width, height, shape_width, shape_height] = [frame.0, frame.1, shape.0, shape.1].map(u64::from);
    let divided = |product: u64, by: u64, most: u32| {
        let rounded = (product + by / 2) / by;
        u32::try_from(rounded).unwrap_or(most).clamp(1, most)
    };
    if width * shape_height > height * shape_width {
        (divided(height * shape_width, shape_height, frame.0), frame.1)
    } else {
        (frame.0, divided(width * shape_height, shape_width, frame.1))
    }
}

/// Scales both sides. The filter has two passes, the vertical one first, and keeps what lies between them in memory as
/// 16 bytes for each pixel. If the height grows and the width shrinks, the horizontal pass must come first.
fn stretch<V>(view: &V, width: u32, height: u32) -> Pixels<V::Pixel>
where
    V: GenericImageView,
    V::Pixel: Pixel<Subpixel = u8> + 'static,
{
    if height > view.height() && width < view.width() {
        let narrow = imageops::resize(view, width, view.height(), FilterType::Triangle);
        return imageops::resize(&narrow, width, height, FilterType::Triangle);
    }
    imageops::resize(view, width, height, FilterType::Triangle)
}

#[cfg(test)]
mod tests {
    use image::{GrayImage, Luma};

    use super::*;

    fn grey(width: u32, values: &[u8]) -> GrayImage {
        GrayImage::from_raw(width, values.len() as u32 / width, values.to_vec()).unwrap()
    }

    fn scaled(picture: GrayImage, mode: ResizeMode, width: u32, height: u32) -> Vec<u8> {
        scale(picture, mode, width, height).into_raw()
    }

    #[test]
    fn a_picture_of_the_right_size_stays() {
        for mode in [ResizeMode::Stretch, ResizeMode::Crop, ResizeMode::Pad] {
            assert_eq!(scaled(grey(2, &[1, 2, 3, 4]), mode, 2, 2), [1, 2, 3, 4]);
        }
    }

    #[test]
    fn shrinking_averages() {
        // Every source pixel counts: samples at single places would give 0 or 255.
        let board: Vec<u8> =
            (0..64).map(|place| if (place / 8 + place % 8) % 2 == 0 { 0 } else { 255 }).collect();
        for value in scaled(grey(8, &board), ResizeMode::Stretch, 2, 2) {
            assert!((126..=129).contains(&value), "{value}");
        }
        // The weights at the distances 1/4, 1/4 and 3/4 are 3/4, 3/4 and 1/4.
        assert_eq!(scaled(grey(4, &[0, 70, 140, 0]), ResizeMode::Stretch, 2, 1), [50, 70]);
    }

    #[test]
    fn stretching_uses_the_whole_picture_in_both_directions() {
        assert_eq!(scaled(grey(2, &[0, 100]), ResizeMode::Stretch, 4, 2), [0, 25, 75, 100, 0, 25, 75, 100]);
    }

    #[test]
    fn cropping_takes_the_centre() {
        let wide = grey(6, &[9, 9, 1, 2, 9, 9, 9, 9, 3, 4, 9, 9]);
        assert_eq!(scaled(wide, ResizeMode::Crop, 2, 2), [1, 2, 3, 4]);
        let high = grey(1, &[9, 5, 9]);
        assert_eq!(scaled(high, ResizeMode::Crop, 1, 1), [5]);
    }

    #[test]
    fn padding_centres_the_whole_picture_between_black_borders() {
        assert_eq!(
            scaled(grey(2, &[7, 7]), ResizeMode::Pad, 4, 4),
            [0, 0, 0, 0, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 0, 0]
        );
        assert_eq!(scaled(grey(1, &[7, 7]), ResizeMode::Pad, 4, 2), [0, 7, 0, 0, 0, 7, 0, 0]);
    }

    #[test]
    fn the_inner_size_is_rounded_and_never_zero() {
        assert_eq!(inside((10, 10), (3, 2)), (10, 7));
        assert_eq!(inside((10, 10), (2, 3)), (7, 10));
        assert_eq!(inside((10, 10), (1000, 1)), (10, 1));
        assert_eq!(inside((10, 10), (1, 1000)), (1, 10));
        assert_eq!(inside((10, 10), (5, 5)), (10, 10));
        assert_eq!(inside((u32::MAX, 1), (1, u32::MAX)), (1, 1));
    }

    #[test]
    fn extreme_proportions_need_no_extreme_memory() {
        // One pass in the wrong order would take 16 bytes for each of 2^22 * 2^12 pixels.
        for mode in [ResizeMode::Stretch, ResizeMode::Crop, ResizeMode::Pad] {
            let line = GrayImage::from_pixel(1 << 22, 1, Luma([200]));
            assert!(about_200(&scaled(line, mode, 1, 1 << 12)));
            let column = GrayImage::from_pixel(1, 1 << 22, Luma([200]));
            assert!(about_200(&scaled(column, mode, 1 << 12, 1)));
        }
        fn about_200(values: &[u8]) -> bool {
            // The sum of four million numbers of single precision is not exact.
            values.iter().any(|value| (190..=210).contains(value))
        }
    }
}
