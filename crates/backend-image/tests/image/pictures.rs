//! What becomes of a good picture.
use image::{ImageBuffer, Luma, Rgb, RgbImage, Rgba};

use crate::support::{RawPng, config, floats_of, jpeg, load, parameters, png, rgb, turned};

const RED: [u8; 3] = [255, 0, 0];
const GREEN: [u8; 3] = [0, 255, 0];
const BLUE: [u8; 3] = [0, 0, 255];
const BLACK: [u8; 3] = [0, 0, 0];

#[test]
fn channels_come_last_or_first() {
    let picture = png(rgb(2, &[[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12]]));
    let pixels = |dims: &str| load(&config(0, "TYPE_UINT8", dims, "")).unwrap().pixels(&picture);
    assert_eq!(pixels("2, 2, 3"), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    assert_eq!(pixels("3, 2, 2"), [1, 4, 7, 10, 2, 5, 8, 11, 3, 6, 9, 12]);
}

#[test]
fn one_channel_is_the_luminance() {
    let picture = png(rgb(2, &[RED, GREEN, BLUE, [255; 3]]));
    for dims in ["2, 2, 1", "1, 2, 2"] {
        assert_eq!(load(&config(0, "TYPE_UINT8", dims, "")).unwrap().pixels(&picture), [54, 182, 18, 255]);
    }
}

#[test]
fn floats_are_normalised() {
    let picture = png(rgb(2, &[[0, 51, 102], [153, 204, 255]]));
    let floats = |dims: &str, pairs: &[(&str, &str)]| {
        let mut model = load(&config(0, "TYPE_FP32", dims, &parameters(pairs))).unwrap();
        floats_of(&model.picture(&picture).unwrap())
    };
    assert_eq!(floats("1, 2, 3", &[]), [0.0, 51.0, 102.0, 153.0, 204.0, 255.0]);
    assert_eq!(floats("1, 2, 3", &[("SCALE", "0.5")]), [0.0, 25.5, 51.0, 76.5, 102.0, 127.5]);
    let all = [("SCALE", "2"), ("MEAN", "2, 4, 8"), ("STD", "1,2,-4")];
    assert_eq!(floats("1, 2, 3", &all), [-2.0, 49.0, -49.0, 304.0, 202.0, -125.5]);
    assert_eq!(floats("3, 1, 2", &all), [-2.0, 304.0, 49.0, 202.0, -49.0, -125.5]);
    assert_eq!(
        floats("1, 2, 3", &[("MEAN", "51"), ("STD", "51")]),
        [-1.0, 0.0, 1.0, 2.0, 3.0, 4.0],
        "one number is for all channels"
    );
    let scaled = floats("1, 2, 3", &[("SCALE", "0.00392156862745098")]);
    assert_eq!(scaled, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]);
}

#[test]
fn a_picture_is_stretched_by_default() {
    let picture = png(rgb(2, &[BLACK, [100; 3], [100; 3], BLACK]));
    for text in [String::new(), parameters(&[("RESIZE", "stretch")])] {
        let mut model = load(&config(0, "TYPE_UINT8", "1, 1, 4", &text)).unwrap();
        assert_eq!(model.pixels(&picture), [50, 50, 50, 50]);
    }
}

#[test]
fn a_picture_is_cropped_in_its_centre() {
    let mut model = load(&config(0, "TYPE_UINT8", "2, 2, 3", &parameters(&[("RESIZE", "crop")]))).unwrap();
    let wide = png(rgb(4, &[BLACK, RED, GREEN, BLACK, BLACK, BLUE, RED, BLACK]));
    assert_eq!(model.pixels(&wide), [RED, GREEN, BLUE, RED].as_flattened());
    let large = RgbImage::from_fn(30, 10, |x, _| Rgb(if (10..20).contains(&x) { GREEN } else { RED }));
    assert_eq!(model.pixels(&png(large)), [GREEN; 4].as_flattened());
}

#[test]
fn a_picture_is_padded_with_black() {
    let pad = parameters(&[("RESIZE", "pad")]);
    let wide = png(RgbImage::from_pixel(20, 10, Rgb(GREEN)));
    let mut model = load(&config(0, "TYPE_UINT8", "4, 4, 3", &pad)).unwrap();
    let expected = [[BLACK; 4], [GREEN; 4], [GREEN; 4], [BLACK; 4]];
    assert_eq!(model.pixels(&wide), expected.as_flattened().as_flattened());
    let normalised = format!("{pad}{}", parameters(&[("MEAN", "5")]));
    let mut model = load(&config(0, "TYPE_FP32", "1, 4, 4", &normalised)).unwrap();
    let floats = floats_of(&model.picture(&wide).unwrap());
    assert_eq!([floats[0], floats[4]], [-5.0, 177.0], "borders are normalised, too");
}

#[test]
fn jpeg_pictures_are_decoded() {
    let picture = RgbImage::from_fn(32, 16, |x, _| Rgb(if x < 16 { RED } else { BLUE }));
    let mut model = load(&config(0, "TYPE_UINT8", "1, 2, 3", "")).unwrap();
    near(&model.pixels(&jpeg(picture)), &[RED, BLUE]);
    let grey = ImageBuffer::from_pixel(8, 8, Luma([77_u8]));
    near(&model.pixels(&jpeg(grey)), &[[77; 3]; 2]);
}

/// Colours that a lossy format has changed a little, and that were mixed with their neighbours.
fn near(pixels: &[u8], expected: &[[u8; 3]]) {
    let differs = |(a, b): (&u8, &u8)| a.abs_diff(*b) > 80;
    let expected = expected.as_flattened();
    assert_eq!(pixels.len(), expected.len());
    assert!(!pixels.iter().zip(expected).any(differs), "{pixels:?} {expected:?}");
}

#[test]
fn a_jpeg_picture_is_turned_as_its_exif_data_say() {
    // Corners: red green / blue black.
    let picture = RgbImage::from_fn(32, 32, |x, y| {
        Rgb(match (x < 16, y < 16) {
            (true, true) => RED,
            (false, true) => GREEN,
            (true, false) => BLUE,
            (false, false) => BLACK,
        })
    });
    let file = jpeg(picture);
    let mut model = load(&config(0, "TYPE_UINT8", "2, 2, 3", "")).unwrap();
    let corners = [
        (1, [RED, GREEN, BLUE, BLACK]),
        (2, [GREEN, RED, BLACK, BLUE]),
        (3, [BLACK, BLUE, GREEN, RED]),
        (4, [BLUE, BLACK, RED, GREEN]),
        (5, [RED, BLUE, GREEN, BLACK]),
        (6, [BLUE, RED, BLACK, GREEN]),
        (7, [BLACK, GREEN, BLUE, RED]),
        (8, [GREEN, BLACK, RED, BLUE]),
    ];
    for (orientation, expected) in corners {
        near(&model.pixels(&turned(&file, orientation)), &expected);
    }
    near(&model.pixels(&turned(&file, 9)), &corners[0].1);
}

#[test]
fn sides_change_places_before_the_picture_is_cropped() {
    let picture = jpeg(RgbImage::from_fn(48, 16, |x, _| Rgb(if x < 16 { RED } else { BLUE })));
    let mut model = load(&config(0, "TYPE_UINT8", "3, 1, 3", "")).unwrap();
    near(&model.pixels(&turned(&picture, 6)), &[RED, BLUE, BLUE]);
}

#[test]
fn transparent_pixels_are_black() {
    let picture = ImageBuffer::from_fn(2, 1, |x, _| Rgba([99_u8, 50, 200, if x == 0 { 0 } else { 128 }]));
    let mut model = load(&config(0, "TYPE_UINT8", "1, 2, 3", "")).unwrap();
    assert_eq!(model.pixels(&png(picture)), [0, 0, 0, 50, 25, 100]);
}

#[test]
fn sixteen_bits_and_grey_become_colours_of_eight_bits() {
    let mut model = load(&config(0, "TYPE_UINT8", "1, 2, 3", "")).unwrap();
    let deep =
        ImageBuffer::from_fn(2, 1, |x, _| Rgb([257 * 9, 257 * 100, if x == 0 { 0 } else { u16::MAX }]));
    assert_eq!(model.pixels(&png(deep)), [9, 100, 0, 9, 100, 255]);
    let grey = ImageBuffer::from_fn(2, 1, |x, _| Luma([x as u8 * 40 + 2]));
    assert_eq!(model.pixels(&png(grey)), [2, 2, 2, 42, 42, 42]);
}

#[test]
fn a_palette_becomes_colours() {
    let palette = |transparent: &[u8]| {
        let file = RawPng::new(2, 1, 3).chunk(b"PLTE", &[10, 20, 30, 40, 50, 60]);
        let file = if transparent.is_empty() { file } else { file.chunk(b"tRNS", transparent) };
        file.pixels(&[0, 1, 0]).end()
    };
    let mut model = load(&config(0, "TYPE_UINT8", "1, 2, 3", "")).unwrap();
    assert_eq!(model.pixels(&palette(&[])), [40, 50, 60, 10, 20, 30]);
    assert_eq!(model.pixels(&palette(&[0])), [40, 50, 60, 0, 0, 0]);
}
