//! Archives that tests write.
use std::io::Write;

use flate2::{Compression as Level, write::DeflateEncoder};
use rawzip::{CompressionMethod, ZipArchiveWriter, path::EntryPath};

/// How members are stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    Stored,
    Deflated,
}

/// An archive with those members: path and content.
pub(crate) fn archive(members: &[(&str, &[u8])], compression: Compression) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = ZipArchiveWriter::new(&mut bytes);
    for (path, content) in members {
        let method = match compression {
            Compression::Stored => CompressionMethod::STORE,
            Compression::Deflated => CompressionMethod::DEFLATE,
        };
        let file = writer.new_file(EntryPath::verbatim(path.as_bytes())).compression_method(method);
        let (mut entry, config) = file.start().unwrap();
        let descriptor = if compression == Compression::Stored {
            let mut data = config.wrap(&mut entry);
            data.write_all(content).unwrap();
            data.finish().unwrap().1
        } else {
            let mut data = config.wrap(DeflateEncoder::new(&mut entry, Level::default()));
            data.write_all(content).unwrap();
            let (encoder, descriptor) = data.finish().unwrap();
            encoder.finish().unwrap();
            descriptor
        };
        entry.finish(descriptor).unwrap();
    }
    writer.finish().unwrap();
    bytes
}
