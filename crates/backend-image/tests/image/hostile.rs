//! Pictures that are damaged, or made to harm the server: errors, never panics, in bounded memory and time.
use crate::support::{Loaded, RawPng, config, detailed, jpeg, load, parameters, png, turned};

fn model() -> Loaded {
    load(&config(0, "TYPE_UINT8", "5, 7, 3", &parameters(&[("MAX_PIXELS", "1000000")]))).unwrap()
}

const NO_PICTURE: &str = "Invalid argument: input 'ENCODED' for model 'model' is not a PNG or JPEG picture: ";

#[test]
fn bytes_of_no_picture_are_refused() {
    let mut model = model();
    assert_eq!(model.error(b""), format!("{NO_PICTURE}it is empty"));
    for bytes in [&b"hello"[..], b"GIF89a\x01\0\x01\0", b"\x89PN", b"\xff", &[0; 100]] {
        assert_eq!(model.error(bytes), format!("{NO_PICTURE}it has the signature of neither format"));
    }
}

#[test]
fn a_header_that_claims_too_many_pixels_is_refused_before_the_pixels_are_read() {
    let bomb = RawPng::new(100_000, 100_000, 2).pixels(&[0; 64]).end();
    let too_large = "Invalid argument: input 'ENCODED' for model 'model' is a picture of 100000 x 100000 pixels, but parameter \
                     'MAX_PIXELS' of the model allows";
    assert_eq!(model().error(&bomb), format!("{too_large} 1000000 pixels"));
    let mut usual = load(&config(0, "TYPE_UINT8", "5, 7, 3", "")).unwrap();
    assert_eq!(usual.error(&bomb), format!("{too_large} 64000000 pixels"));
    // A line of this header is larger than the pixels that are allowed.
    let line = RawPng::new((1 << 31) - 1, 1, 6).pixels(&[0; 64]).end();
    assert_eq!(
        model().error(&line),
        format!("{NO_PICTURE}it needs more memory than parameter 'MAX_PIXELS' of the model allows")
    );
}

#[test]
fn a_jpeg_header_that_claims_too_many_pixels_is_refused() {
    let mut file = jpeg(detailed(8, 8));
    let frame = file.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    file[frame + 5..frame + 9].fill(0xff);
    let said = model().error(&file);
    assert!(said.contains("is a picture of 65535 x 65535 pixels"), "{said}");
}

#[test]
fn the_limit_is_the_last_size_that_is_allowed() {
    let text = config(0, "TYPE_UINT8", "2, 2, 3", &parameters(&[("MAX_PIXELS", "12")]));
    let mut model = load(&text).unwrap();
    assert!(model.picture(&png(detailed(4, 3))).is_ok());
    assert!(model.error(&png(detailed(13, 1))).contains("is a picture of 13 x 1 pixels"));
}

#[test]
fn a_damaged_colour_profile_is_ignored() {
    // The profile is not even compressed data.
    let profile = [&b"name\0\0"[..], &[0x78, 0x9c, 0xff, 0xff]].concat();
    let file = RawPng::new(1, 1, 2).chunk(b"iCCP", &profile).pixels(&[0, 1, 2, 3]).end();
    assert_eq!(model().pixels(&file)[..3], [1, 2, 3]);
}

#[test]
fn a_cut_picture_is_refused() {
    let mut model = model();
    let png = png(detailed(20, 20));
    // The last chunk has no pixels.
    for len in 0..png.len() - 20 {
        let said = model.error(&png[..len]);
        assert!(said.starts_with(NO_PICTURE), "{len}: {said}");
    }
    for file in [jpeg(detailed(20, 20)), turned(&jpeg(detailed(20, 20)), 1)] {
        assert!(model.picture(&file).is_ok());
        for len in 0..file.len() {
            let said = model.error(&file[..len]);
            assert!(said.starts_with(NO_PICTURE), "{len}: {said}");
        }
    }
    let file = jpeg(detailed(20, 20));
    assert_eq!(model.error(&file[..file.len() - 2]), format!("{NO_PICTURE}it ends before its last pixel"));
}

/// A reproducible sequence of numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

#[test]
fn damaged_pictures_never_stop_the_model() {
    let good = [png(detailed(19, 23)), jpeg(detailed(19, 23)), turned(&jpeg(detailed(16, 8)), 6)];
    let mut model = model();
    let rounds =
        std::env::var("NEREID_PICTURE_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3000);
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let (mut read, mut refused) = (0, 0);
    for round in 0..rounds {
        let mut file = good[round % good.len()].clone();
        for _ in 0..=numbers.below(4) {
            let place = numbers.below(file.len());
            match numbers.below(4) {
                0 => file[place] = numbers.below(256) as u8,
                1 => file[place] ^= 1 << numbers.below(8),
                2 => drop(file.drain(place..(place + numbers.below(9)).min(file.len()))),
                _ => file.insert(place, [0, 0xff, 0xd8, 0xda][numbers.below(4)]),
            }
        }
        match model.picture(&file) {
            Ok(response) => {
                read += 1;
                assert_eq!(response.outputs[0].byte_size(), 5 * 7 * 3);
            }
            Err(error) => {
                refused += 1;
                assert_eq!(error.code, vocabulary::ErrorCode::InvalidArgument, "round {round}: {error}");
            }
        }
    }
    assert!(read > 0 && refused > 0, "{read} were read, {refused} were refused");
}
