//! Reads and writes pictures as PNG files.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use png::{BitDepth, ColorType, Transformations};

use crate::Result;

/// A picture: rows of pixels, with 1 to 4 values per pixel in the range 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// Number of pixels per row.
    pub width: usize,
    /// Number of rows of pixels.
    pub height: usize,
    /// Number of values per pixel: gray or red, green and blue; with 2 or 4, the last one is opacity.
    pub channels: usize,
    /// Values in the range 0 to 1, row by row and pixel by pixel.
    pub values: Vec<f32>,
}

impl Image {
    /// Reads a PNG file of any colour type. Palettes are expanded, and 16-bit samples are reduced to 8.
    ///
    /// # Errors
    /// The error names the file.
    pub fn read(path: &Path) -> Result<Self> {
        let wrong = |why: &dyn std::fmt::Display| format!("cannot read {}: {why}", path.display());
        let file = File::open(path).map_err(|error| wrong(&error))?;
        let mut decoder = png::Decoder::new(BufReader::new(file));
        decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
        let mut reader = decoder.read_info().map_err(|error| wrong(&error))?;
        let size = reader.output_buffer_size().ok_or_else(|| wrong(&"it is larger than memory"))?;
        // The decoded bytes, plus one `f32` for each of them.
        check_memory(size.saturating_mul(1 + size_of::<f32>())).map_err(|error| wrong(&error))?;
        let mut bytes = reserve(size).map_err(|error| wrong(&error))?;
        bytes.resize(size, 0);
        let frame = reader.next_frame(&mut bytes).map_err(|error| wrong(&error))?;
        bytes.truncate(frame.buffer_size());
        if frame.bit_depth != BitDepth::Eight {
            return Err(wrong(&format!("{:?} bits a value are not supported", frame.bit_depth)).into());
        }
        let mut values = reserve(bytes.len()).map_err(|error| wrong(&error))?;
        values.extend(bytes.into_iter().map(|byte| f32::from(byte) / 255.0));
        Ok(Self {
            width: frame.width as usize,
            height: frame.height as usize,
            channels: frame.color_type.samples(),
            values,
        })
    }

    /// Encodes the picture as PNG with 8 bits per value.
    ///
    /// # Errors
    /// The picture has too many pixels, or the number of values does not match its size.
    pub fn to_png(&self) -> Result<Vec<u8>> {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, self.width.try_into()?, self.height.try_into()?);
        encoder.set_depth(BitDepth::Eight);
        encoder.set_color(match self.channels {
            1 => ColorType::Grayscale,
            2 => ColorType::GrayscaleAlpha,
            3 => ColorType::Rgb,
            _ => ColorType::Rgba,
        });
        let bytes: Vec<u8> = self.values.iter().map(|v| (v.clamp(0.0, 1.0) * 255.0).round() as u8).collect();
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&bytes)?;
        writer.finish()?;
        Ok(file)
    }

    /// Number of values in a row of pixels.
    pub fn row(&self) -> usize {
        self.width * self.channels
    }

    /// Returns a picture of the same size and number of channels with other values.
    ///
    /// # Panics
    /// If `values` has a different length.
    #[must_use]
    pub fn with_values(&self, values: Vec<f32>) -> Self {
        assert_eq!(values.len(), self.values.len());
        Self { values, ..*self }
    }
}

/// Checks that this machine has `bytes` bytes of memory available. A PNG header may claim any size.
fn check_memory(bytes: usize) -> Result<()> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    match rushmem::inspect::available_memory(&meminfo) {
        Some(available) if bytes as u64 > available => {
            Err(format!("it needs {bytes} bytes of memory, and this machine has {available} available")
                .into())
        }
        _ => Ok(()),
    }
}

/// Returns an empty vector with capacity for `len` elements, or an error instead of an abort.
fn reserve<T>(len: usize) -> Result<Vec<T>> {
    let mut vector = Vec::new();
    match vector.try_reserve_exact(len) {
        Ok(()) => Ok(vector),
        Err(_) => {
            Err(format!("this process cannot have the {} bytes that it needs", len * size_of::<T>()).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Output;

    fn image(width: usize, height: usize, channels: usize) -> Image {
        let value = |i| (crate::pattern(1, i as u64) % 256) as f32 / 255.0;
        Image { width, height, channels, values: (0..width * height * channels).map(value).collect() }
    }

    #[test]
    fn picture_round_trips_through_png() {
        let folder = tempfile::tempdir().unwrap();
        for (width, height, channels) in [(1, 1, 1), (7, 5, 2), (451, 3, 3), (2, 9, 4)] {
            let path = folder.path().join("a.png");
            let written = image(width, height, channels);
            Output::new(&path).unwrap().write(&written.to_png().unwrap()).unwrap();
            assert_eq!(Image::read(&path).unwrap(), written);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn read_error_names_the_bad_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("no.png");
        let error = |path: &Path| Image::read(path).unwrap_err().to_string();
        assert!(error(&path).contains("no.png: No such file"), "{}", error(&path));
        std::fs::write(&path, "hello").unwrap();
        assert!(error(&path).contains("no.png: "), "{}", error(&path));
        Output::new(&path).unwrap().write(&image(64, 64, 3).to_png().unwrap()).unwrap();
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        assert!(error(&path).contains("no.png: "), "{}", error(&path));
        assert!(Output::new(&folder.path().join("none/out.png")).is_err());
        assert!(Output::new(folder.path()).is_err());
    }

    #[test]
    fn rejects_a_png_that_claims_too_many_pixels() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("huge.png");
        // 16 TB of values.
        let side = 1 << 20;
        let mut encoder = png::Encoder::new(File::create(&path).unwrap(), side, side);
        encoder.set_color(ColorType::Rgb);
        encoder.write_header().unwrap().write_chunk(png::chunk::IDAT, &[0; 16]).unwrap();
        let error = Image::read(&path).unwrap_err().to_string();
        assert!(error.contains("huge.png: ") && error.contains("memory"), "{error}");
    }

    #[test]
    fn reads_the_bundled_picture() {
        let chelsea =
            Image::read(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/data/chelsea.png"))).unwrap();
        assert_eq!((chelsea.width, chelsea.height, chelsea.channels), (451, 300, 3));
    }
}
