//! What the adapter does to frames for the driver: checksums, segmentation, VLAN tags.

use super::{ETHERNET, IPV4, IPV6, Ip, Layers, TAG, TCP, UDP, parse};

/// Returns the ones' complement sum of big-endian words, after `start`.
pub(crate) fn sum(start: u32, bytes: &[u8]) -> u16 {
    let (words, rest) = bytes.as_chunks::<2>();
    let last = rest.first().map_or(0, |byte| u64::from(*byte) << 8);
    let mut sum =
        words.iter().fold(u64::from(start) + last, |sum, word| sum + u64::from(u16::from_be_bytes(*word)));
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Returns the sum of the pseudo header, which the checksums of TCP and UDP cover.
fn pseudo_header(frame: &[u8], network: usize, ip: &Ip) -> u32 {
    let (source, destination) = ip.addresses(frame, network);
    let len = (ip.end - ip.transport) as u32;
    let addresses = u32::from(sum(0, source)) + u32::from(sum(0, destination));
    addresses + (len >> 16) + (len & 0xffff) + u32::from(ip.protocol)
}

/// Offset of the checksum in the header of a protocol.
fn checksum_at(protocol: u8) -> usize {
    if protocol == TCP { 16 } else { 6 }
}

/// Writes the checksums of a frame.
pub(crate) fn fill_checksums(frame: &mut [u8], of_ip: bool, of_transport: bool) {
    let Some(Layers { network, ip: Some(ip), .. }) = parse(frame) else { return };
    if of_ip && !ip.is_v6 {
        frame[network + 10..network + 12].fill(0);
        let checksum = !sum(0, &frame[network..header_end(frame, network)]);
        frame[network + 10..network + 12].copy_from_slice(&checksum.to_be_bytes());
    }
    if of_transport && ip.has_ports() {
        let at = ip.transport + checksum_at(ip.protocol);
        frame[at..at + 2].fill(0);
        let checksum = !sum(pseudo_header(frame, network, &ip), ip.payload(frame));
        // For UDP, 0 means that there is none.
        let checksum = if checksum == 0 && ip.protocol == UDP { !0 } else { checksum };
        frame[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Returns the offset just past the IPv4 header at `network`.
fn header_end(frame: &[u8], network: usize) -> usize {
    network + usize::from(frame[network] & 0xf) * 4
}

/// Returns whether the checksums of the IP header and of TCP or UDP are correct.
pub(crate) fn correct(frame: &[u8], layers: &Layers) -> (bool, bool) {
    let Some(ip) = layers.ip.filter(|ip| ip.is_whole) else { return (false, false) };
    let network = layers.network;
    let of_ip = ip.is_v6 || sum(0, &frame[network..header_end(frame, network)]) == 0xffff;
    let at = ip.transport + checksum_at(ip.protocol);
    let of_transport = ip.has_ports() && {
        let has_none = ip.protocol == UDP && !ip.is_v6 && frame[at..at + 2] == [0; 2];
        has_none || sum(pseudo_header(frame, network, &ip), ip.payload(frame)) == 0xffff
    };
    (of_ip, of_transport)
}

/// Inserts a VLAN tag: its EtherType and its control information.
pub(crate) fn insert_tag(frame: &mut Vec<u8>, (tag, control): (u16, u16)) {
    let bytes = u32::from(tag) << 16 | u32::from(control);
    let at = (ETHERNET - 2).min(frame.len());
    frame.splice(at..at, bytes.to_be_bytes());
}

/// Removes the outermost VLAN tag.
pub(crate) fn remove_tag(frame: &mut Vec<u8>) {
    let at = ETHERNET - 2;
    if frame.len() >= at + TAG {
        frame.drain(at..at + TAG);
    }
}

/// Sends data as several segments: calls `each` with frames that have the first `headers` bytes of `large`, and up to
/// `size` bytes of the rest.
///
/// Lengths, sequence numbers and flags are adjusted, checksums are not. Returns `false` if the headers are not those of
/// TCP or UDP, or a segment is longer than they can say.
pub(crate) fn segment(large: &[u8], headers: usize, size: usize, mut each: impl FnMut(Vec<u8>)) -> bool {
    let Some((head, data)) = large.split_at_checked(headers) else { return false };
    let Some(template) = Template::of(head) else { return false };
    // The lengths in the headers have 16 bits.
    if head.len() + size.min(data.len()) > usize::from(u16::MAX) {
        return false;
    }
    let count = data.len().div_ceil(size.max(1));
    for (number, part) in data.chunks(size.max(1)).enumerate() {
        let mut frame = Vec::with_capacity(head.len() + part.len());
        frame.extend_from_slice(head);
        frame.extend_from_slice(part);
        template.adjust(&mut frame, number, number * size, number + 1 == count);
        each(frame);
    }
    true
}

/// The headers that all segments share.
struct Template {
    network: usize,
    is_v6: bool,
    protocol: u8,
    transport: usize,
}

impl Template {
    /// Finds the headers. Their lengths may be those of all data or 0.
    fn of(head: &[u8]) -> Option<Template> {
        let Layers { network, ethertype, .. } = parse(head)?;
        let is_v6 = match ethertype {
            IPV4 => false,
            IPV6 => true,
            _ => return None,
        };
        // Segments of IPv6 with extension headers are not offered.
        let (protocol, transport) = match is_v6 {
            true => (*head.get(network + 6)?, network + 40),
            false => (*head.get(network + 9)?, header_end(head.get(..network + 20)?, network)),
        };
        let least = match protocol {
            TCP => 20,
            UDP => 8,
            _ => return None,
        };
        (head.len() >= transport + least).then_some(Template { network, is_v6, protocol, transport })
    }

    /// Adjusts the headers of the segment with this number, whose data starts at `offset`.
    fn adjust(&self, frame: &mut [u8], number: usize, offset: usize, is_last: bool) {
        const FIN_PSH: u8 = 0x09;
        const CWR: u8 = 0x80;

        let Template { network, is_v6, protocol, transport } = *self;
        let len = (frame.len() - network) as u16;
        if is_v6 {
            frame[network + 4..network + 6].copy_from_slice(&(len - 40).to_be_bytes());
        } else {
            frame[network + 2..network + 4].copy_from_slice(&len.to_be_bytes());
            let id = u16::from_be_bytes([frame[network + 4], frame[network + 5]]);
            let id = id.wrapping_add(number as u16);
            frame[network + 4..network + 6].copy_from_slice(&id.to_be_bytes());
        }
        let header = &mut frame[transport..];
        if protocol == UDP {
            let len = header.len() as u16;
            header[4..6].copy_from_slice(&len.to_be_bytes());
            return;
        }
        if let Some(sequence) = header[4..].first_chunk_mut::<4>() {
            *sequence = u32::from_be_bytes(*sequence).wrapping_add(offset as u32).to_be_bytes();
        }
        if !is_last {
            header[13] &= !FIN_PSH;
        }
        if number != 0 {
            header[13] &= !CWR;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::frame;
    use super::*;

    #[test]
    fn checksums_are_filled_and_found_correct() {
        for protocol in [TCP, UDP] {
            let mut frame = frame(protocol, b"odd");
            fill_checksums(&mut frame, true, true);
            // By hand: the words of the IP header but its checksum add up to 0x6690 plus the rest.
            let layers = parse(&frame).unwrap();
            assert_eq!(correct(&frame, &layers), (true, true));
            frame[30] ^= 1;
            assert_eq!(correct(&frame, &layers), (false, false));
        }
    }

    #[test]
    fn the_checksum_of_an_ip_header_by_hand() {
        // The example of RFC 1071's common illustration: 45 00 00 73 00 00 40 00 40 11 .. c0 a8 00 01 c0 a8 00 c7.
        let header =
            [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7];
        assert_eq!(!sum(0, &header), 0xb861);
    }

    #[test]
    fn segments_continue_each_other() {
        let data: Vec<u8> = (0..250).collect();
        let large = frame(TCP, &data);
        let mut frames = Vec::new();
        assert!(segment(&large, 54, 100, |frame| frames.push(frame)));
        assert_eq!(frames.iter().map(Vec::len).collect::<Vec<_>>(), [154, 154, 104]);
        assert_eq!(frames.iter().flat_map(|frame| &frame[54..]).copied().collect::<Vec<_>>(), data);
        let of = |at: usize| frames.iter().map(|frame| frame[at]).collect::<Vec<_>>();
        // Length and ID of IP; sequence number and flags of TCP.
        assert_eq!((of(17), of(19)), (vec![140, 140, 90], vec![7, 8, 9]));
        assert_eq!((of(41), of(47)), (vec![9, 109, 209], vec![0x10, 0x10, 0x19]));
        let large = frame(UDP, &data);
        let mut lengths = Vec::new();
        assert!(segment(&large, 42, 200, |frame| lengths.push(frame[39])));
        assert_eq!(lengths, [208, 58]);
        assert!(!segment(&large, 30, 100, |_| {}) && !segment(&large, 1000, 100, |_| {}));
        assert!(!segment(&frame(TCP, &[0; 65_500]), 54, 65_500, |_| {}));
    }

    #[test]
    fn tags_are_inserted_and_removed() {
        let before = frame(UDP, b"data");
        let mut tagged = before.clone();
        insert_tag(&mut tagged, (0x8100, 0x2005));
        assert_eq!(tagged[12..18], [0x81, 0, 0x20, 5, 8, 0]);
        remove_tag(&mut tagged);
        assert_eq!(tagged, before);
    }
}
