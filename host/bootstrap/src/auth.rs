//! The job's token, and proofs of knowing it.
//!
//! Both sides of a connection send a fresh challenge. Each then sends an HMAC-SHA-256 (RFC 2104) over both challenges
//! and its role, with the token as the key. The token itself never crosses the network, a recorded proof cannot be
//! replayed, and proofs are compared in constant time. Data after the handshake is neither encrypted nor signed: use a
//! trusted network.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::error::Error;
use crate::wire::PROOF_BYTES;

/// A job's secret: 32 random bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; PROOF_BYTES]);

/// Role of the side that sends a proof. A proof for one role is invalid for the others, so it cannot be reflected.
#[derive(Clone, Copy)]
pub enum Role {
    /// The job's server, whether it runs in the launcher or in the process of a PE.
    Launcher,
    /// A PE or observer that connects to the server.
    Pe,
    /// A PE that exports its heap. It takes the launcher's part in the handshake with a PE that imports the heap.
    HeapOwner,
    /// A PE that imports the heap of another PE.
    HeapUser,
}

impl Token {
    /// Creates a random token.
    ///
    /// # Errors
    ///
    /// - [`Error::Random`]: the system provides no random bytes.
    pub fn generate() -> Result<Token, Error> {
        nonce().map(Token)
    }

    /// Decodes 64 hexadecimal digits. Surrounding white space is ignored.
    ///
    /// # Errors
    ///
    /// - [`Error::Token`]: the text is not 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Result<Token, Error> {
        let text = text.trim().as_bytes();
        let mut token = [0; PROOF_BYTES];
        if text.len() != 2 * PROOF_BYTES {
            return Err(Error::Token);
        }
        for (byte, digits) in token.iter_mut().zip(text.chunks_exact(2)) {
            let digit = |d: u8| char::from(d).to_digit(16).ok_or(Error::Token);
            *byte = (digit(digits[0])? << 4 | digit(digits[1])?) as u8;
        }
        Ok(Token(token))
    }

    /// Returns the token as 64 hexadecimal digits, for the environment of a PE. Never log them.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(crate) fn bytes(&self) -> &[u8; PROOF_BYTES] {
        &self.0
    }

    pub(crate) fn from_bytes(bytes: [u8; PROOF_BYTES]) -> Token {
        Token(bytes)
    }

    /// Returns the HMAC over both challenges and `role`, with which that side proves that it knows the token.
    pub fn proof(
        &self,
        role: Role,
        launcher: &[u8; PROOF_BYTES],
        pe: &[u8; PROOF_BYTES],
    ) -> [u8; PROOF_BYTES] {
        self.mac(role, launcher, pe).finalize().into_bytes().into()
    }

    /// Checks in constant time whether `proof` is the one that [`Token::proof`] returns for these arguments.
    pub fn verify(
        &self,
        role: Role,
        launcher: &[u8; PROOF_BYTES],
        pe: &[u8; PROOF_BYTES],
        proof: &[u8; PROOF_BYTES],
    ) -> bool {
        self.mac(role, launcher, pe).verify_slice(proof).is_ok()
    }

    fn mac(&self, role: Role, launcher: &[u8; PROOF_BYTES], pe: &[u8; PROOF_BYTES]) -> Hmac<Sha256> {
        let role: &[u8] = match role {
            Role::Launcher => b"rushmem bootstrap: launcher",
            Role::Pe => b"rushmem bootstrap: PE",
            Role::HeapOwner => b"rushmem heap: owner",
            Role::HeapUser => b"rushmem heap: user",
        };
        let mac = match Hmac::<Sha256>::new_from_slice(&self.0) {
            Ok(mac) => mac,
            Err(_) => unreachable!("HMAC takes a key of any length"),
        };
        mac.chain_update(role).chain_update(launcher).chain_update(pe)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Returns fresh random bytes from the system.
///
/// # Errors
///
/// - [`Error::Random`]: the system provides no random bytes.
pub fn nonce() -> Result<[u8; PROOF_BYTES], Error> {
    let mut bytes = [0; PROOF_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| Error::Random(error.to_string()))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_its_own_hex_and_rejects_other_text() {
        let token = Token::generate().unwrap();
        assert_eq!(Token::from_hex(&format!(" {}\n", token.to_hex())).unwrap(), token);
        assert_ne!(Token::generate().unwrap(), token);
        for text in ["", "ab", &"x".repeat(64), &"é".repeat(32), &"a".repeat(65)] {
            assert!(Token::from_hex(text).is_err(), "{text}");
        }
        assert!(!format!("{token:?}").contains(&token.to_hex()[..8]));
    }

    #[test]
    fn proof_is_valid_for_one_token_role_and_challenge() {
        let (ours, other) = (Token([1; 32]), Token([2; 32]));
        let (a, b) = ([3; 32], [4; 32]);
        let proof = ours.proof(Role::Pe, &a, &b);
        assert!(ours.verify(Role::Pe, &a, &b, &proof));
        assert!(!other.verify(Role::Pe, &a, &b, &proof));
        assert!(!ours.verify(Role::Launcher, &a, &b, &proof));
        assert!(!ours.verify(Role::Pe, &b, &a, &proof));
    }

    // The expected value was computed by Python's `hmac` module.
    #[test]
    fn proof_is_hmac_sha256() {
        let proof = Token([0x0b; 32]).proof(Role::Pe, &[1; 32], &[2; 32]);
        let hex: String = proof.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "68bcf9918ceda83dea290c7547f3b8a7d912f7b7be36d765770dfc8cbfd6b066");
    }
}
