//! Unmodified programs that connect through librdmacm, by IP address.

mod common;
mod program;

use common::{Running, all_there, built, free_port, is_listening, output_text, skip, softnic};
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

/// Port space of connections, RDMA_PS_TCP.
const TCP: &str = "0106";
/// Port space of any kind of QP, RDMA_PS_IB.
const IB: &str = "013f";
/// Port space of datagrams, RDMA_PS_UDP.
const UDP: &str = "0111";

/// Whether a process listens on a port of a port space.
fn serves(space: &str, port: u16) -> bool {
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    sockets.contains(&format!("@rushmem-rdmacm/listen/{space}/{port}/"))
}

/// Starts a program with the software ConnectX.
fn start(options: &[&str], command: &str) -> Running {
    Running::start(softnic(options, &command.split_whitespace().collect::<Vec<_>>()))
}

/// Runs a server that exits with its client. Returns the output of both. `PORT` in the commands is their port in this
/// space.
fn outputs(options: &[&str], space: &str, server: &str, client: &str) -> [Output; 2] {
    let port = free_port();
    let command = |text: &str| text.replace("PORT", &port.to_string());
    let server = start(options, &command(server)).wait_until(|| serves(space, port));
    let client = start(options, &command(client)).end();
    [server.end(), client]
}

/// Like [`outputs`], but as text. Both must succeed.
fn pair(options: &[&str], space: &str, server: &str, client: &str) -> [String; 2] {
    let outputs = outputs(options, space, server, client);
    for (output, command) in outputs.iter().zip([server, client]) {
        assert!(output.status.success(), "{command}: {}\n{}", output.status, output_text(output));
    }
    outputs.map(|output| output_text(&output))
}

fn has_rdmacm_utils(test: &str) -> bool {
    let programs = ["rping", "ucmatose", "udaddy", "rstream", "riostream", "rcopy", "rdma_server", "cmtime"];
    all_there(test, &programs, "rdmacm-utils")
}

/// Asserts that rping succeeded, or failed only by a race in rping itself after all data was transferred.
///
/// On exit, rping's main thread closes the event channel. If its other thread is about to get the next event, that
/// thread fails with `EBADF` and exits the process, on every device.
fn assert_rping(output: &Output) {
    let text = output_text(output);
    let closed_early = text.contains("rdma_get_cm_event: Bad file descriptor");
    assert!(output.status.success() || closed_early, "{}\n{text}", output.status);
}

/// Runs a ping-pong with all data verified, at the server's addresses and as named by the client.
fn ping(options: &[&str], server: &str, client: &str) {
    let flags = "-p PORT -V -v -C 20 -S 1000";
    let server = format!("rping -s -a {server} {flags}");
    let client = format!("rping -c -a {client} {flags}");
    for output in outputs(options, TCP, &server, &client) {
        assert_rping(&output);
        let text = output_text(&output);
        assert!(text.contains("ping data: rdma-ping-19"), "{text}");
        assert!(!text.contains("mismatch"), "{text}");
    }
}

#[test]
fn ping_pong_is_verified() {
    if has_rdmacm_utils("ping_pong_is_verified") {
        ping(&[], "127.0.0.1", "127.0.0.1");
        ping(&[], "0.0.0.0", "127.0.0.7");
        ping(&[], "::", "::1");
    }
}

/// Both the connection manager's messages and the QPs' packets are retransmitted.
#[test]
fn lost_and_repeated_messages_do_no_harm() {
    if has_rdmacm_utils("lost_and_repeated_messages_do_no_harm") {
        ping(&["--fault", "drop=0.2 duplicate=0.3 reorder=0.2"], "127.0.0.1", "127.0.0.1");
    }
}

#[test]
fn an_adapter_is_found_by_its_address() {
    if !has_rdmacm_utils("an_adapter_is_found_by_its_address") {
        return;
    }
    let port = free_port();
    let server = start(&["--ip", "127.64.77.1"], &format!("rping -s -p {port} -C 3"));
    let server = server.wait_until(|| serves(TCP, port));
    let client = start(&["--ip", "127.64.77.2"], &format!("rping -c -a 127.64.77.1 -p {port} -C 3")).end();
    for output in [server.end(), client] {
        assert_rping(&output);
    }
}

#[test]
fn several_connections_of_one_process() {
    if !has_rdmacm_utils("several_connections_of_one_process") {
        return;
    }
    let flags = "-p PORT -c 5 -C 10 -S 2000";
    let [server, client] =
        pair(&[], TCP, &format!("ucmatose {flags}"), &format!("ucmatose -s 127.0.0.1 {flags}"));
    for text in [server, client] {
        assert!(text.contains("data transfers complete") && text.contains("return status 0"), "{text}");
    }
    let [server, client] = pair(&[], TCP, "rdma_server -p PORT", "rdma_client -s 127.0.0.1 -p PORT");
    assert!(server.contains("rdma_server: end 0") && client.contains("rdma_client: end 0"));
}

#[test]
fn extended_connections() {
    if !all_there("extended_connections", &["rdma_xserver", "rdma_xclient"], "rdmacm-utils") {
        return;
    }
    for (space, kind) in [(IB, "x"), (TCP, "r")] {
        let server = format!("rdma_xserver -p PORT -c {kind}");
        let client = format!("rdma_xclient -s 127.0.0.1 -p PORT -c {kind}");
        let [server, client] = pair(&[], space, &server, &client);
        assert!(server.contains("rdma_xserver: end 0") && client.contains("rdma_xclient: end 0"));
    }
}

#[test]
fn many_connections_at_once() {
    if !has_rdmacm_utils("many_connections_at_once") {
        return;
    }
    let port = free_port();
    // The server runs until it is killed.
    let _server = start(&[], &format!("cmtime -p {port}")).wait_until(|| serves(TCP, port));
    let client = start(&[], &format!("cmtime -s 127.0.0.1 -p {port} -c 50")).end();
    let text = output_text(&client);
    assert!(client.status.success() && text.contains("disconnect"), "{text}");
}

#[test]
fn streams_like_sockets() {
    if !has_rdmacm_utils("streams_like_sockets") {
        return;
    }
    for tool in ["rstream -T v", "riostream -T v"] {
        let flags = "-p PORT -S 5000 -C 20";
        let outputs = pair(&[], TCP, &format!("{tool} {flags}"), &format!("{tool} -s 127.0.0.1 {flags}"));
        assert!(outputs.iter().all(|text| text.contains("custom")), "{outputs:?}");
    }
}

#[test]
fn a_file_is_copied() {
    if !has_rdmacm_utils("a_file_is_copied") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(&from, &bytes).unwrap();
    let port = free_port();
    let _server = start(&[], &format!("rcopy -p {port}")).wait_until(|| serves(TCP, port));
    let place = |path: &Path| path.to_str().unwrap().to_owned();
    let copy = format!("rcopy {} 127.0.0.1:{} -p {port}", place(&from), place(&to));
    let client = start(&[], &copy).end();
    assert!(client.status.success(), "{}", output_text(&client));
    assert!(std::fs::read(&to).unwrap() == bytes);
}

#[test]
fn perftest_connects() {
    if !all_there("perftest_connects", &["ib_write_bw", "ib_send_bw", "ib_read_lat"], "perftest") {
        return;
    }
    let tools =
        ["ib_write_bw -n 20", "ib_send_bw -n 20 -e", "ib_read_lat -n 20", "ib_send_bw -c UD -n 20 -s 1024"];
    for tool in tools {
        let server = format!("{tool} -R -F -p PORT");
        let [_, client] = pair(&[], TCP, &server, &format!("{server} 127.0.0.1"));
        assert!(client.contains("#bytes"), "{client}");
    }
}

/// Returns the number of local sockets in a multicast group.
fn members(group: [u8; 4]) -> usize {
    let name = format!("{:08X}", u32::from_le_bytes(group));
    let table = std::fs::read_to_string("/proc/net/igmp").unwrap();
    let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.find(|words| words.first() == Some(&&*name)).map_or(0, |words| words[1].parse().unwrap())
}

#[test]
fn a_multicast_group_reaches_all_members() {
    if !all_there("a_multicast_group_reaches_all_members", &["mckey"], "rdmacm-utils") {
        return;
    }
    let group = [239, 77, 1, (std::process::id() % 250) as u8];
    let address = std::net::Ipv4Addr::from(group);
    let member = format!("mckey -m {address} -b 127.0.0.1 -C 10");
    let receivers: Vec<Running> =
        (1..=2).map(|count| start(&[], &member).wait_until(|| members(group) == count)).collect();
    let sender = start(&[], &format!("{member} -s")).end();
    for output in receivers.into_iter().map(Running::end).chain([sender]) {
        let text = output_text(&output);
        assert!(output.status.success() && text.contains("data transfers complete"), "{text}");
    }
}

/// Returns the output of a client for a server that listens on a TCP port before it uses librdmacm. The server runs
/// until it is killed.
fn beside_tcp(options: &[&str], server: &str, client: &str) -> String {
    let port = free_port();
    let command = |text: &str| text.replace("PORT", &port.to_string());
    let _server = start(options, &command(server)).wait_until(|| is_listening(port));
    let client = start(options, &command(client)).end();
    let text = output_text(&client);
    assert!(client.status.success(), "{text}");
    text
}

#[test]
fn qperf_connects() {
    if all_there("qperf_connects", &["qperf"], "qperf") {
        let text = beside_tcp(&[], "qperf -lp PORT", "qperf -lp PORT -t 1 -cm 1 127.0.0.1 rc_lat rc_bw");
        assert!(text.contains("latency") && text.contains("bw"), "{text}");
    }
}

/// Runs a ping-pong with each kind of endpoint. Datagrams need no connection, which is why they work over InfiniBand as
/// well.
#[test]
#[ignore = "slow: runs with --ignored"]
fn libfabric_checks_its_data() {
    if !all_there("libfabric_checks_its_data", &["fi_pingpong"], "libfabric-bin") {
        return;
    }
    let ping_pong = |options: &[&str], provider: &str, largest: &str| {
        let tool = format!("fi_pingpong -p {provider} -I 20 -c");
        let text = beside_tcp(options, &format!("{tool} -B PORT"), &format!("{tool} -P PORT 127.0.0.1"));
        assert!(text.lines().any(|line| line.starts_with(largest)), "{provider} {options:?}: {text}");
    };
    for provider in ["verbs -e msg", "verbs;ofi_rxm -e rdm"] {
        ping_pong(&[], provider, "1m ");
    }
    for options in [&[][..], &["--link", "ib"]] {
        ping_pong(options, "verbs;ofi_rxd -e rdm", "1m ");
        // The largest datagram is an MTU.
        ping_pong(options, "verbs -e dgram", "4k ");
    }
}

/// Returns the output and the duration of a client that connects to nobody.
fn refused(address: &str) -> (String, Duration) {
    let begin = Instant::now();
    let client = start(&[], &format!("rping -c -a {address} -p {} -C 1", free_port())).end();
    assert!(!client.status.success());
    (output_text(&client), begin.elapsed())
}

#[test]
fn a_closed_port_rejects() {
    if has_rdmacm_utils("a_closed_port_rejects") {
        // 8: no such service.
        let (text, _) = refused("127.0.0.1");
        assert!(text.contains("RDMA_CM_EVENT_REJECTED, error 8"), "{text}");
    }
}

#[test]
#[ignore = "slow: runs with --ignored"]
fn nobody_is_unreachable() {
    if has_rdmacm_utils("nobody_is_unreachable") {
        let (text, took) = refused("127.64.100.1");
        assert!(text.contains("RDMA_CM_EVENT_UNREACHABLE, error -110"), "{text}");
        assert!(took > Duration::from_secs(5), "the request was sent again for a while, not {took:?}");
        // Without --ip, adapters reach no other machine. 101: the network is unreachable.
        let (text, _) = refused("198.51.100.7");
        assert!(text.contains("RDMA_CM_EVENT_ADDR_ERROR, error -101"), "{text}");
        assert!(text.contains("--ip ADDRESS"), "{text}");
    }
}

#[test]
fn the_end_of_a_killed_peer_shows() {
    if !has_rdmacm_utils("the_end_of_a_killed_peer_shows") {
        return;
    }
    let port = free_port();
    let mut server = start(&[], &format!("rping -s -a 127.0.0.1 -p {port}")).wait_until(|| serves(TCP, port));
    let client = start(&[], &format!("rping -c -a 127.0.0.1 -p {port}"));
    std::thread::sleep(Duration::from_millis(500));
    server.kill();
    let begin = Instant::now();
    let text = output_text(&client.end());
    assert!(text.contains("DISCONNECT EVENT"), "{text}");
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    assert!(!serves(TCP, port), "the port is free again");
}

#[test]
fn a_port_has_one_listener() {
    if !has_rdmacm_utils("a_port_has_one_listener") {
        return;
    }
    let port = free_port();
    let _server = start(&[], &format!("rping -s -a 127.0.0.1 -p {port}")).wait_until(|| serves(TCP, port));
    for (address, why) in
        [("127.0.0.1", "Address already in use"), ("0.0.0.0", "Cannot assign requested address")]
    {
        let output = start(&[], &format!("rping -s -a {address} -p {port}")).end();
        let text = output_text(&output);
        assert!(!output.status.success() && text.contains(why), "{text}");
    }
}

/// Returns the names of the messages in a capture, in order.
fn messages(capture: &Path) -> Vec<String> {
    let fields = ["-Y", "infiniband.mad", "-T", "fields", "-e", "_ws.col.Info"];
    let output = std::process::Command::new("tshark").arg("-r").arg(capture).args(fields).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.trim_start_matches("CM: ").to_owned()).collect()
}

/// Captures the server's packets: the client may exit before the last reply arrives. Returns the messages and the output
/// of both programs.
fn captured(space: &str, port: u16, server: &str, client: &str) -> (Vec<String>, [String; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("capture");
    let server = start(&["--capture", file.to_str().unwrap()], server).wait_until(|| serves(space, port));
    let client = start(&[], client).end();
    let outputs = [server.end(), client].map(|output| output_text(&output));
    (messages(&file), outputs)
}

#[test]
fn datagrams_find_their_queue_pair() {
    let test = "datagrams_find_their_queue_pair";
    if !has_rdmacm_utils(test) || !all_there(test, &["tshark"], "tshark") {
        return;
    }
    // The program's port is fixed.
    let (shown, texts) = captured(UDP, 7174, "udaddy -c 2 -C 10", "udaddy -s 127.0.0.1 -c 2 -C 10");
    for text in texts {
        assert!(text.contains("data transfers complete") && text.contains("return status 0"), "{text}");
    }
    assert_eq!(shown.iter().filter(|name| *name == "ServiceIDResReq").count(), 2, "{shown:?}");
    assert_eq!(shown.iter().filter(|name| *name == "ServiceIDResReqResp").count(), 2, "{shown:?}");
}

#[test]
fn wireshark_shows_the_messages() {
    let test = "wireshark_shows_the_messages";
    if !has_rdmacm_utils(test) || !all_there(test, &["tshark"], "tshark") {
        return;
    }
    let port = free_port();
    let server = format!("rping -s -p {port} -C 1");
    let (shown, _) = captured(TCP, port, &server, &format!("rping -c -a 127.0.0.1 -p {port} -C 1"));
    assert_eq!(shown[..3], ["ConnectRequest", "ConnectReply", "ReadyToUse"]);
    assert!(shown.contains(&"DisconnectRequest".into()) && shown.contains(&"DisconnectReply".into()));
}

/// Preloads `librspreload.so`, which turns TCP sockets into rsockets, before or after this library.
#[test]
fn sockets_become_rsockets_in_either_order() {
    let test = "sockets_become_rsockets_in_either_order";
    let library = ["/usr/lib/x86_64-linux-gnu/rsocket", "/usr/lib64/rsocket", "/usr/lib/rsocket"]
        .map(|folder| Path::new(folder).join("librspreload.so"))
        .into_iter()
        .find(|library| library.is_file());
    let Some(library) = library else { return skip(test, "librspreload.so of the package librdmacm1") };
    let Some(program) = program::sockets_program(test) else { return };
    let (program, rsockets) = (program.to_str().unwrap(), library.to_str().unwrap());
    let own = built().join("rushmem-preload");
    for first in [own.to_str().unwrap(), rsockets] {
        let port = free_port();
        let second = if first == rsockets { own.to_str().unwrap() } else { rsockets };
        let preload = format!("LD_PRELOAD={first}:{second}");
        let start = |arguments: &[&str]| {
            let port = port.to_string();
            let command = [&["env", &preload, program, &port], arguments].concat();
            Running::start(softnic(&[], &command))
        };
        let server = start(&[]).wait_until(|| serves(TCP, port));
        assert!(!is_listening(port), "{preload}: the server listens on TCP");
        let outputs = [start(&["client"]).end(), server.end()];
        for output in outputs {
            assert_eq!(output_text(&output), "all good\n", "{preload}: {}", output.status);
        }
    }
}
