//! The fuzz targets on pseudo-random bytes, so that stable Rust runs them too: valid inputs with a few bytes changed,
//! cut or lengthened, and plain noise.

#[allow(unreachable_pub, reason = "public in the fuzz crate, which shares the file")]
#[path = "../../fuzz/src/lib.rs"]
mod targets;

/// Inputs a target.
const INPUTS: u64 = 100_000;

/// splitmix64: small, seeded, good enough to pick bytes.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn input(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut input = seeds[self.below(seeds.len())].clone();
        match self.below(8) {
            0 => input.iter_mut().for_each(|byte| *byte = self.next() as u8),
            1 => input.truncate(self.below(input.len() + 1)),
            2 => input.extend([self.next() as u8; 16]),
            _ => {}
        }
        for _ in 0..self.below(6) {
            if !input.is_empty() {
                // Half of the changes go to the first bytes, where formats keep what steers decoding.
                let reach = if self.below(2) == 0 { input.len().min(16) } else { input.len() };
                let at = self.below(reach);
                input[at] = if self.below(4) == 0 { 0xff } else { self.next() as u8 };
            }
        }
        input
    }
}

#[test]
fn no_target_panics_on_any_bytes() {
    for (name, target, seeds) in targets::targets() {
        let mut random = Random(0x5eed);
        for seed in &seeds {
            target(seed);
        }
        for nth in 0..INPUTS {
            let input = random.input(&seeds);
            let run = std::panic::catch_unwind(|| target(&input));
            assert!(run.is_ok(), "{name}: input {nth} fails: {input:02x?}");
        }
    }
}
