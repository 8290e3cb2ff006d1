//! The types of settings and their text form. Each type can parse the text that it shows, except for secrets.

use std::fmt;
use std::net::Ipv4Addr;
use std::num::NonZeroU32;
use std::time::Duration;

use rushmem_device::sq::MAX_DEPTH;
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};

/// A type of setting: parsed from text, shown as text.
pub(crate) trait Value: Sized {
    /// Describes the accepted values, for error messages.
    fn accepts() -> String;

    /// Parses a value. The error states the cause and does not repeat the text.
    fn parse(text: &str) -> Result<Self, String>;

    /// Formats the value in the form that [`Value::parse`] accepts. Secrets only show that they are set.
    fn show(&self) -> String;
}

/// A number of bytes. Text: `4096`, `64KiB`, `64MiB`, `1g`. All units are powers of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

/// A number of bytes, or `None`. Text: `none`, or a size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OptionalBytes(pub Option<Bytes>);

/// A time limit, or `None` for no limit. Text: `none`, or a duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit(pub Option<Duration>);

/// The value of a setting, or `None` if the runtime chooses it. Text: `auto`, or the value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Auto<T>(pub Option<T>);

/// A partition key (P_Key): 15 bits that identify the partition, and a bit for full membership. Text: `0x8001`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Partition(pub u16);

impl Partition {
    /// The default partition, as a full member.
    pub const DEFAULT: Partition = Partition(0xffff);
    /// Bit of a P_Key that marks a full member of its partition. Full members may talk to all members, limited members
    /// only to full ones.
    const FULL: u16 = 1 << 15;

    /// Returns the 15 bits that identify the partition. They are never 0.
    pub fn number(self) -> u16 {
        self.0 & !Self::FULL
    }

    /// Returns whether this P_Key is that of a full member of its partition.
    pub fn is_full(self) -> bool {
        self.0 & Self::FULL != 0
    }

    /// Returns whether ports with these keys may talk to each other.
    ///
    /// InfiniBand Architecture Specification, section 10.9.3.
    pub fn admits(self, other: Partition) -> bool {
        self.number() == other.number() && (self.is_full() || other.is_full())
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

/// How many times a NIC retransmits an unacknowledged packet before it reports an error: 0 to 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries(u8);

impl Retries {
    /// Returns the number of retransmissions.
    pub fn get(self) -> u8 {
        self.0
    }
}

/// A power of two, from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PowerOfTwo<const MIN: u32, const MAX: u32>(u32);

/// Depth of a send queue, in WQEs.
pub type SqDepth = PowerOfTwo<2, { MAX_DEPTH as u32 }>;

/// Number of DC initiators that replace the QPs to the peers in a large job.
pub type Dcis = PowerOfTwo<1, 256>;

impl<const MIN: u32, const MAX: u32> PowerOfTwo<MIN, MAX> {
    /// Returns the power of two as an integer.
    pub fn get(self) -> u32 {
        self.0
    }
}

/// A job's secret: 64 hexadecimal digits, which are never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Returns the secret as hexadecimal digits. Use them for authentication only.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Where the symmetric heap is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeapKind {
    /// GPU memory if kernels run on a GPU, otherwise host memory.
    Auto,
    /// The heap is in host memory, which is page-locked where kernels run on a GPU.
    Host,
    /// The heap is in GPU memory.
    Device,
}

/// Which processor runs kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// A GPU if there is one, otherwise the native GPU emulator.
    Auto,
    /// Native GPU emulator on the cores of this machine.
    Native,
    /// Kernels run on a GPU. It is an error if the machine has none.
    Gpu,
}

/// Layout of a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CqKind {
    /// A ring with one CQE per completion.
    Ring,
    /// A single CQE, which each completion overwrites: only the newest counter is visible.
    Collapsed,
}

/// When QPs are created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectKind {
    /// The QPs to a peer are created when a kernel first posts to it.
    Lazy,
    /// The QPs to all peers are created when the job starts.
    Eager,
}

/// Order in which the WRITEs of a QP take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordering {
    /// The order that the NIC's firmware chooses.
    Auto,
    /// Posting order, as the InfiniBand specification requires.
    Ibta,
    /// Any order, as adaptive routing delivers packets.
    OutOfOrder,
}

/// Whether the data of puts and gets uses memory keys with relaxed ordering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelaxedOrdering {
    /// Relaxed ordering is used where it delays no `quiet`: on RDMA devices, if each PE uses several.
    Auto,
    /// Relaxed ordering is always used. It delays each `quiet` by one READ.
    On,
    /// Relaxed ordering is never used.
    Off,
}

/// How a PE accesses its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerPath {
    /// P2P between GPUs that can map each other's memory. Native kernels use the NIC.
    Auto,
    /// Loads and stores to the mapped heaps of peers on the same node; it is an error if a heap cannot be mapped. Peers
    /// on other nodes are reached through the NIC.
    P2p,
    /// The NIC for every peer, including those on the same node.
    Nic,
}

/// Which words processor atomics update in a job with both P2P peers and NIC peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum P2pAtomics {
    /// Only words that a kernel accesses through `Ctx::for_node_words`, which promises that only PEs of one node do so.
    Promised,
    /// All words of P2P peers. The program promises that NIC peers never update these words.
    Node,
}

/// When to show progress bars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Progress bars appear if standard error is a terminal.
    Auto,
    /// Progress bars always appear. The reader of standard error must support `\r`.
    Always,
    /// Progress bars never appear.
    Never,
}

/// The GPUs of a job. Local PE `i` uses entry `i` modulo their number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gpus {
    /// All GPUs of the machine.
    Auto,
    /// The GPUs with these ordinals, in this order.
    List(Vec<u32>),
}

impl Gpus {
    /// Returns the GPU of local PE `local_pe` on a node with `found` GPUs, or `None` if it has none.
    pub fn of(&self, local_pe: u32, found: u32) -> Option<u32> {
        match self {
            Gpus::Auto => local_pe.checked_rem(found),
            Gpus::List(list) => list.get(local_pe as usize % list.len().max(1)).copied(),
        }
    }
}

/// A GPU architecture, as major and minor compute capability. `None` is the architecture of the GPU that runs the
/// kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuArch(pub Option<(u32, u32)>);

/// Memory of the queues that kernels share with an RDMA device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueMemory {
    /// Like `PreferDevice` for kernels on a GPU, and like `Host` for native kernels.
    Auto,
    /// Host memory; page-locked where kernels run on a GPU.
    Host,
    /// The queues are in GPU memory. It is an error if the NIC cannot access it.
    Device,
    /// GPU memory if the NIC can access it, otherwise host memory. Native kernels follow the code path of a GPU.
    PreferDevice,
}

/// Who writes an RDMA device's doorbell register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorbellKind {
    /// The kernel if the GPU can write the register, otherwise a CPU thread.
    Auto,
    /// The kernel writes the register. It is an error if the GPU cannot.
    Gpu,
    /// A CPU thread writes the register on behalf of the kernel.
    Cpu,
}

/// A type with a name for each of its values.
pub(crate) trait Choice: Copy + PartialEq + 'static {
    const NAMES: &'static [(&'static str, Self)];
}

impl Choice for HeapKind {
    const NAMES: &'static [(&'static str, Self)] =
        &[("auto", HeapKind::Auto), ("host", HeapKind::Host), ("device", HeapKind::Device)];
}

impl Choice for DeviceKind {
    const NAMES: &'static [(&'static str, Self)] =
        &[("auto", DeviceKind::Auto), ("native", DeviceKind::Native), ("gpu", DeviceKind::Gpu)];
}

impl Choice for ConnectKind {
    const NAMES: &'static [(&'static str, Self)] =
        &[("lazy", ConnectKind::Lazy), ("eager", ConnectKind::Eager)];
}

impl Choice for CqKind {
    const NAMES: &'static [(&'static str, Self)] =
        &[("ring", CqKind::Ring), ("collapsed", CqKind::Collapsed)];
}

impl Choice for Ordering {
    const NAMES: &'static [(&'static str, Self)] =
        &[("auto", Ordering::Auto), ("ibta", Ordering::Ibta), ("out_of_order", Ordering::OutOfOrder)];
}

impl Choice for RelaxedOrdering {
    const NAMES: &'static [(&'static str, Self)] =
        &[("auto", RelaxedOrdering::Auto), ("on", RelaxedOrdering::On), ("off", RelaxedOrdering::Off)];
}

impl Choice for PeerPath {
    const NAMES: &'static [(&'static str, Self)] =
        &[("auto", PeerPath::Auto), ("p2p", PeerPath::P2p), ("nic", PeerPath::Nic)];
}

impl Choice for P2pAtomics {
    const NAMES: &'static [(&'static str, Self)] =
        &[("promised", P2pAtomics::Promised), ("node", P2pAtomics::Node)];
}

impl Choice for QueueMemory {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("auto", QueueMemory::Auto),
        ("host", QueueMemory::Host),
        ("device", QueueMemory::Device),
        ("prefer_device", QueueMemory::PreferDevice),
    ];
}

impl Choice for DoorbellKind {
    const NAMES: &'static [(&'static str, Self)] =
        &[("auto", DoorbellKind::Auto), ("gpu", DoorbellKind::Gpu), ("cpu", DoorbellKind::Cpu)];
}

impl Choice for Progress {
    const NAMES: &'static [(&'static str, Self)] =
        &[("auto", Progress::Auto), ("always", Progress::Always), ("never", Progress::Never)];
}

impl<T: Choice> Value for T {
    fn accepts() -> String {
        T::NAMES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    }

    fn parse(text: &str) -> Result<Self, String> {
        let found = T::NAMES.iter().find(|(name, _)| *name == text);
        found.map(|(_, value)| *value).ok_or_else(|| "unknown name".into())
    }

    fn show(&self) -> String {
        T::NAMES.iter().find(|(_, value)| value == self).map_or_else(String::new, |(name, _)| (*name).into())
    }
}

fn whole(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let number: u64 = text.parse().map_err(|_| "not a whole number".to_string())?;
    if number < least {
        return Err("too small".into());
    }
    if number > most {
        return Err("too large".into());
    }
    Ok(number)
}

impl Value for u8 {
    fn accepts() -> String {
        format!("a whole number from 0 to {}", u8::MAX)
    }

    fn parse(text: &str) -> Result<Self, String> {
        whole(text, 0, u8::MAX.into()).map(|n| n as u8)
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for u32 {
    fn accepts() -> String {
        format!("a whole number from 0 to {}", u32::MAX)
    }

    fn parse(text: &str) -> Result<Self, String> {
        whole(text, 0, u32::MAX.into()).map(|n| n as u32)
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for u16 {
    fn accepts() -> String {
        format!("a whole number from 0 to {}", u16::MAX)
    }

    fn parse(text: &str) -> Result<Self, String> {
        whole(text, 0, u16::MAX.into()).map(|n| n as u16)
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for NonZeroU32 {
    fn accepts() -> String {
        format!("a whole number from 1 to {}", u32::MAX)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let number = whole(text, 1, u32::MAX.into())? as u32;
        NonZeroU32::new(number).ok_or_else(|| "too small".into())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl<const MIN: u32, const MAX: u32> Value for PowerOfTwo<MIN, MAX> {
    fn accepts() -> String {
        format!("a power of two from {MIN} to {MAX}")
    }

    fn parse(text: &str) -> Result<Self, String> {
        let number = whole(text, MIN.into(), MAX.into())? as u32;
        if number.is_power_of_two() { Ok(Self(number)) } else { Err("not a power of two".into()) }
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}

impl<T: Value> Value for Auto<T> {
    fn accepts() -> String {
        format!("auto, or {}", T::accepts())
    }

    fn parse(text: &str) -> Result<Self, String> {
        if text == "auto" { Ok(Self(None)) } else { T::parse(text).map(|value| Self(Some(value))) }
    }

    fn show(&self) -> String {
        self.0.as_ref().map_or_else(|| "auto".into(), T::show)
    }
}

impl Value for Partition {
    fn accepts() -> String {
        "a key of 16 bits, hexadecimal, such as 0x8001; without its highest bit it is not 0".into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix("0x").ok_or("it does not begin with 0x")?;
        let key = u16::from_str_radix(digits, 16).map_err(|_| "not a number of 16 bits".to_string())?;
        if Partition(key).number() == 0 {
            Err("no partition has this key".into())
        } else {
            Ok(Partition(key))
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for Retries {
    fn accepts() -> String {
        "a whole number from 0 to 7".into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        whole(text, 0, 7).map(|n| Retries(n as u8))
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}

/// Splits `64MiB` into `64` and `mib`.
fn number_and_unit(text: &str) -> (&str, String) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim_start().to_lowercase())
}

impl Value for Bytes {
    fn accepts() -> String {
        "a number of bytes above zero, such as 4096, 64KiB, 64MiB or 1g (units are powers of 1024)".into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let (number, unit) = number_and_unit(text);
        let shift = match unit.as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err("not a number with a unit of bytes".into()),
        };
        let number = whole(number, 1, u64::MAX)?;
        number.checked_mul(1 << shift).map(Bytes).ok_or_else(|| "too large".into())
    }

    fn show(&self) -> String {
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        let exact = units.iter().find(|(shift, _)| self.0 != 0 && self.0.trailing_zeros() >= *shift);
        exact.map_or_else(|| self.0.to_string(), |(shift, unit)| format!("{}{unit}", self.0 >> shift))
    }
}

impl Value for OptionalBytes {
    fn accepts() -> String {
        format!("none, or {}", Bytes::accepts())
    }

    fn parse(text: &str) -> Result<Self, String> {
        if text == "none" { Ok(Self(None)) } else { Bytes::parse(text).map(|bytes| Self(Some(bytes))) }
    }

    fn show(&self) -> String {
        self.0.map_or_else(|| "none".into(), |bytes| bytes.show())
    }
}

impl Value for Limit {
    fn accepts() -> String {
        format!("none, or {}", Duration::accepts())
    }

    fn parse(text: &str) -> Result<Self, String> {
        if text == "none" { Ok(Self(None)) } else { Duration::parse(text).map(|limit| Self(Some(limit))) }
    }

    fn show(&self) -> String {
        self.0.map_or_else(|| "none".into(), |limit| limit.show())
    }
}

impl Value for Duration {
    fn accepts() -> String {
        "a duration above zero with its unit, such as 250ms, 5s, 1.5s or 2m".into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let (number, unit) = number_and_unit(text);
        let unit_seconds = match unit.as_str() {
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            "" => return Err("its unit is missing".into()),
            _ => return Err("not a number with a unit of time".into()),
        };
        let number: f64 = number.parse().map_err(|_| "not a number".to_string())?;
        // Round to nanoseconds, so decimal text round-trips.
        let nanos = (number * unit_seconds * 1e9).round();
        if nanos < 1.0 {
            return Err("too small".into());
        }
        if nanos > 1e18 {
            return Err("too large".into());
        }
        Ok(Duration::from_nanos(nanos as u64))
    }

    fn show(&self) -> String {
        let nanos = self.as_nanos();
        match () {
            () if nanos.is_multiple_of(1_000_000_000) => format!("{}s", nanos / 1_000_000_000),
            () if nanos.is_multiple_of(1_000_000) => format!("{}ms", nanos / 1_000_000),
            () => format!("{}us", nanos as f64 / 1e3),
        }
    }
}

impl Value for Ipv4Addr {
    fn accepts() -> String {
        "an IPv4 address, such as 127.0.0.1".into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| "not an IPv4 address".into())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for String {
    fn accepts() -> String {
        "text".into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        Ok(text.into())
    }

    fn show(&self) -> String {
        self.clone()
    }
}

impl Value for Secret {
    fn accepts() -> String {
        "64 hexadecimal digits".into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        if text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit()) {
            Ok(Secret(text.to_ascii_lowercase()))
        } else {
            Err("not 64 hexadecimal digits".into())
        }
    }

    fn show(&self) -> String {
        "(set)".into()
    }
}

impl Value for Gpus {
    fn accepts() -> String {
        "auto, or ordinals separated by commas, such as 0,1".into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Gpus::Auto);
        }
        let ordinal =
            |part: &str| part.trim().parse().map_err(|_| format!("`{}` is not an ordinal", part.trim()));
        text.split(',').map(ordinal).collect::<Result<_, _>>().map(Gpus::List)
    }

    fn show(&self) -> String {
        match self {
            Gpus::Auto => "auto".into(),
            Gpus::List(list) => list.iter().map(u32::to_string).collect::<Vec<_>>().join(","),
        }
    }
}

impl Value for GpuArch {
    fn accepts() -> String {
        "auto, or sm_ and a compute capability, such as sm_80".into()
    }

    fn parse(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self(None));
        }
        let number = text.strip_prefix("sm_").and_then(|digits| digits.parse::<u32>().ok());
        number.map(|n| Self(Some((n / 10, n % 10)))).ok_or_else(|| format!("`{text}` is not an architecture"))
    }

    fn show(&self) -> String {
        self.0.map_or_else(|| "auto".into(), |(major, minor)| format!("sm_{major}{minor}"))
    }
}

/// Empty text means `None`.
impl<T: Value> Value for Option<T> {
    fn accepts() -> String {
        format!("{}; empty for none", T::accepts())
    }

    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() { Ok(None) } else { T::parse(text).map(Some) }
    }

    fn show(&self) -> String {
        self.as_ref().map_or_else(String::new, T::show)
    }
}

/// Parses a setting given as text, a number or a list of numbers in a file. [`Value::parse`] validates it.
pub(crate) fn from_file<'de, D: Deserializer<'de>, T: Value>(from: D) -> Result<T, D::Error> {
    let text = from.deserialize_any(Text)?;
    T::parse(&text)
        .map_err(|why| D::Error::custom(format!("`{text}` is not valid: {why}; accepted: {}", T::accepts())))
}

struct Text;

impl<'de> Visitor<'de> for Text {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text, a whole number, or a list of whole numbers")
    }

    fn visit_str<E>(self, text: &str) -> Result<String, E> {
        Ok(text.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_u64<E>(self, number: u64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<String, A::Error> {
        let mut parts = Vec::new();
        while let Some(number) = list.next_element::<i64>()? {
            parts.push(number.to_string());
        }
        Ok(parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [("1", 1), ("64MiB", 64 << 20), ("1g", 1 << 30), ("2 KB", 2048), ("3T", 3 << 40)]
        {
            assert_eq!(Bytes::parse(text), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "0", "-1", "MiB", "1.5g", "9x", "99999999999t"] {
            assert!(Bytes::parse(text).is_err(), "{text}");
        }
        assert_eq!(Bytes(1 << 20).show(), "1MiB");
        assert_eq!(Bytes(1000).show(), "1000");
    }

    #[test]
    fn durations() {
        for (text, micros) in
            [("5s", 5_000_000), ("250ms", 250_000), ("1.5s", 1_500_000), ("2m", 120_000_000)]
        {
            assert_eq!(Duration::parse(text), Ok(Duration::from_micros(micros)), "{text}");
        }
        for text in ["", "5", "0s", "-1s", "s", "1..s", "1y", "1e9s", "99999999999999h"] {
            assert!(Duration::parse(text).is_err(), "{text}");
        }
        for micros in [1, 1_500, 250_000, 60_000_000] {
            let duration = Duration::from_micros(micros);
            assert_eq!(Duration::parse(&duration.show()), Ok(duration));
        }
    }

    #[test]
    fn queue_depths() {
        assert_eq!(SqDepth::parse("2").map(SqDepth::get), Ok(2));
        assert_eq!(SqDepth::parse("16384").map(SqDepth::get), Ok(16384));
        for text in ["0", "1", "3", "32768", "x"] {
            assert!(SqDepth::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn partitions() {
        let key = |text| Partition::parse(text).unwrap();
        assert_eq!((key("0xffff").show().as_str(), key("0x1").show().as_str()), ("0xffff", "0x0001"));
        for text in ["", "0x", "8001", "0x0", "0x8000", "0x18001", "0x-1"] {
            assert!(Partition::parse(text).is_err(), "{text}");
        }
        assert!(key("0x8001").admits(key("0x1")) && key("0x1").admits(key("0x8001")));
        assert!(!key("0x1").admits(key("0x1")), "two limited members");
        assert!(!key("0x8001").admits(key("0x8002")));
    }

    #[test]
    fn reads_auto_or_a_value() {
        assert_eq!(Auto::<u8>::parse("auto"), Ok(Auto(None)));
        assert_eq!(Auto::<u8>::parse("0"), Ok(Auto(Some(0))));
        assert!(Auto::<u8>::parse("").is_err() && Auto::<u8>::parse("256").is_err());
        assert_eq!(Retries::parse("7").map(Retries::get), Ok(7));
        assert!(Retries::parse("8").is_err());
    }

    #[test]
    fn gpus() {
        assert_eq!(Gpus::parse("auto").unwrap().of(5, 4), Some(1));
        assert_eq!(Gpus::parse("auto").unwrap().of(5, 0), None);
        assert_eq!(Gpus::parse("2, 0").unwrap().of(3, 0), Some(0));
        assert!(Gpus::parse("").is_err());
        assert!(Gpus::parse("0,,1").is_err());
    }

    #[test]
    fn architectures() {
        assert_eq!(GpuArch::parse("sm_103"), Ok(GpuArch(Some((10, 3)))));
        assert_eq!(GpuArch(Some((7, 5))).show(), "sm_75");
        for wrong in ["80", "sm_", "sm_90a", ""] {
            assert!(GpuArch::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn secrets_stay_secret() {
        let secret = Secret::parse(&"aB".repeat(32)).unwrap();
        assert_eq!(secret.reveal(), "ab".repeat(32));
        assert!(!format!("{secret:?}{}", secret.show()).contains("ab"));
        assert!(Secret::parse("abc").is_err());
    }
}
