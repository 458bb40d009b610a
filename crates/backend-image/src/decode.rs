//! Decodes a picture within bounds: its size is checked before its pixels are read.
use std::io::Cursor;

use image::{
    DynamicImage, GrayImage, ImageDecoder, ImageError, ImageFormat, Limits, RgbImage,
    codecs::{jpeg::JpegDecoder, png::PngDecoder},
};

/// Why a picture is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PictureFault {
    /// It is not a picture of a known format, or it is damaged.
    Unreadable(String),
    /// It claims more pixels than it may have.
    TooLarge { width: u32, height: u32 },
}

/// The most bytes that a decoder needs for a pixel: red, green, blue and alpha of 16 bits each.
const PIXEL_BYTES: u64 = 8;
/// What a decoder may need besides the pixels: colour profiles and texts.
const CHUNK_BYTES: u64 = 16 << 20;

/// The pixels of a PNG or JPEG picture of at most `max_pixels` pixels, turned as its EXIF data say.
///
/// # Errors
/// The picture is refused.
pub(crate) fn decode(encoded: &[u8], max_pixels: u64) -> Result<DynamicImage, PictureFault> {
    match image::guess_format(encoded) {
        Ok(ImageFormat::Png) => {
            let mut limits = Limits::no_limits();
            limits.max_alloc = Some(max_pixels.saturating_mul(PIXEL_BYTES).saturating_add(CHUNK_BYTES));
            pixels(PngDecoder::with_limits(Cursor::new(encoded), limits)?, max_pixels)
        }
        Ok(ImageFormat::Jpeg) => {
            if !has_end(encoded) {
                return Err(PictureFault::unreadable("it ends before its last pixel"));
            }
            pixels(JpegDecoder::new(Cursor::new(encoded))?, max_pixels)
        }
        _ if encoded.is_empty() => Err(PictureFault::unreadable("it is empty")),
        _ => Err(PictureFault::unreadable("it has the signature of neither format")),
    }
}

fn pixels(mut decoder: impl ImageDecoder, max_pixels: u64) -> Result<DynamicImage, PictureFault> {
    let (width, height) = decoder.dimensions();
    if u64::from(width) * u64::from(height) > max_pixels {
        return Err(PictureFault::TooLarge { width, height });
    }
    if width == 0 || height == 0 {
        return Err(PictureFault::unreadable("it has no pixels"));
    }
    let orientation = decoder.orientation()?;
    let mut picture = DynamicImage::from_decoder(decoder)?;
    picture.apply_orientation(orientation);
    Ok(picture)
}

/// Whether a JPEG picture has a marker of its end. The decoder would fill a missing part with grey.
fn has_end(encoded: &[u8]) -> bool {
    const END: [u8; 2] = [0xff, 0xd9];
    // A preview in the EXIF data has an end, too. So only the part behind the first scan's header counts.
    let scan = first_scan(encoded).unwrap_or_default();
    encoded[scan..].windows(END.len()).rev().any(|pair| pair == END)
}

/// The place of the first scan's marker. `None` if the segments before it are damaged, which the decoder will tell.
fn first_scan(encoded: &[u8]) -> Option<usize> {
    const SCAN: u8 = 0xda;
    let mut place = 2;
    loop {
        match *encoded.get(place..place + 2)? {
            [0xff, SCAN] => return Some(place),
            // Fill bytes may stand before a marker.
            [0xff, 0xff] => place += 1,
            [0xff, _] => {
                let length = encoded.get(place + 2..place + 4)?;
                place += 2 + usize::from(u16::from_be_bytes([length[0], length[1]]));
            }
            _ => return None,
        }
    }
}

/// Three channels of eight bits. What is transparent shows black.
pub(crate) fn into_rgb(picture: DynamicImage) -> RgbImage {
    if !picture.color().has_alpha() {
        return picture.into_rgb8();
    }
    let picture = picture.into_rgba8();
    let mut opaque = RgbImage::new(picture.width(), picture.height());
    for (target, source) in opaque.pixels_mut().zip(picture.pixels()) {
        let [red, green, blue, alpha] = source.0;
        target.0 = [red, green, blue].map(|value| over_black(value, alpha));
    }
    opaque
}

/// One channel of eight bits, the luminance. What is transparent shows black.
pub(crate) fn into_grey(picture: DynamicImage) -> GrayImage {
    if !picture.color().has_alpha() {
        return picture.into_luma8();
    }
    let picture = picture.into_luma_alpha8();
    let mut opaque = GrayImage::new(picture.width(), picture.height());
    for (target, source) in opaque.pixels_mut().zip(picture.pixels()) {
        let [value, alpha] = source.0;
        target.0 = [over_black(value, alpha)];
    }
    opaque
}

fn over_black(value: u8, alpha: u8) -> u8 {
    let product = u16::from(value) * u16::from(alpha);
    u8::try_from((product + 127) / 255).unwrap_or(u8::MAX)
}

impl PictureFault {
    fn unreadable(why: &str) -> Self {
        Self::Unreadable(why.to_owned())
    }
}

impl From<ImageError> for PictureFault {
    fn from(error: ImageError) -> Self {
        if let ImageError::Limits(_) = error {
            return Self::unreadable("it needs more memory than parameter 'MAX_PIXELS' of the model allows");
        }
        // The texts of decoders may have several lines.
        let text = error.to_string();
        Self::Unreadable(text.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use image::{Rgb, Rgba};

    use super::*;

    const SCAN: [u8; 8] = [0xff, 0xd8, 0xff, 0xe1, 0, 4, 0xff, 0xd9];

    #[test]
    fn the_end_of_a_preview_is_not_the_end_of_the_picture() {
        let cut = [&SCAN[..], &[0xff, 0xff, 0xda, 0, 2, 1, 2, 3]].concat();
        assert!(!has_end(&cut));
        assert!(has_end(&[&cut[..], &[0xff, 0xd9]].concat()));
        assert!(has_end(&[&cut[..], &[0xff, 0xd9, 0, 0]].concat()), "bytes may follow");
    }

    #[test]
    fn transparent_pixels_are_black() {
        let picture = image::RgbaImage::from_fn(3, 1, |x, _| Rgba([200, 100, 50, [0, 128, 255][x as usize]]));
        let rgb = into_rgb(picture.clone().into());
        assert_eq!(
            rgb.pixels().map(|pixel| pixel.0).collect::<Vec<_>>(),
            [[0; 3], [100, 50, 25], [200, 100, 50]]
        );
        let grey = into_grey(picture.into());
        // 0.2126 * 200 + 0.7152 * 100 + 0.0722 * 50 = 117.65
        assert_eq!(grey.into_raw(), [0, 59, 118]);
    }

    #[test]
    fn other_depths_become_eight_bits() {
        let deep = image::ImageBuffer::from_pixel(1, 1, Rgb([65535_u16, 257 * 7, 0]));
        assert_eq!(into_rgb(deep.into()).into_raw(), [255, 7, 0]);
        let grey = GrayImage::from_raw(1, 1, vec![9]).unwrap();
        assert_eq!(into_rgb(grey.into()).into_raw(), [9, 9, 9]);
    }
}
