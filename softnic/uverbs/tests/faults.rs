//! Tests of the faults that a device can show, as a program sees them.

mod common;
mod mlx5;

use common::{all_there, output_text, pair, softnic};
use mlx5::{Handle, Mlx5, inside};
use rushmem_mlx5::prm::CmdStatus;
use rushmem_mlx5::prm::caps::{AtomicCaps, CapType, HcaCap, QueryHcaCap, QueryRoceAddress, RoceVersion};
use rushmem_mlx5::prm::qp::{CreateQp, ECE_VERSION_1};
use rushmem_softnic::HostBuffer;

fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

fn memory_file() -> i32 {
    // SAFETY: a C string and numbers.
    unsafe {
        let file = libc::memfd_create(c"dma-buf".as_ptr(), 0);
        assert_eq!(libc::ftruncate(file, 4096), 0);
        file
    }
}

/// Registers a page in all four ways: MR and umem, of memory and of a dma-buf. Returns the errors.
fn registrations(lib: &Mlx5, context: Handle) -> [Option<i32>; 4] {
    let buffer: &HostBuffer = Box::leak(Box::new(HostBuffer::new(4096)));
    let (at, file) = (buffer.as_ptr() as u64, memory_file());
    let pd = lib.alloc_pd(context).unwrap();
    [
        errno(lib.reg_mr(pd, at, 4096, at, 1)),
        errno(lib.umem(context, at, 4096)),
        errno(lib.reg_dmabuf(pd, 0, 4096, file)),
        errno(lib.umem_dmabuf(context, 0, 4096, file)),
    ]
}

#[test]
fn without_faults_all_registrations_work() {
    inside("without_faults_all_registrations_work", &[], |lib| {
        let context = lib.open(0, true).unwrap();
        assert_eq!(registrations(lib, context), [None; 4]);
        for kind in [0, 1] {
            lib.alloc_uar(context, kind).unwrap();
        }
    });
}

#[test]
fn no_permission() {
    inside("no_permission", &["--fault", "open=EACCES"], |lib| {
        assert_eq!(lib.names(), ["mlx5_0"]);
        // libibverbs then waits for a node to appear, and may lose the reason of the failure.
        assert!(lib.open(0, true).is_err() && lib.open(0, false).is_err());
        let node = c"/dev/infiniband/uverbs0";
        // SAFETY: a C string and a number.
        let access = |mode| unsafe { libc::access(node.as_ptr(), mode) };
        assert_eq!(access(libc::F_OK), 0);
        assert_eq!(
            (access(libc::R_OK | libc::W_OK), std::io::Error::last_os_error().raw_os_error()),
            (-1, Some(libc::EACCES))
        );
        assert_eq!(errno(std::fs::File::open(node.to_str().unwrap())), Some(libc::EACCES));
    });
}

#[test]
fn no_locked_memory() {
    inside("no_locked_memory", &["--fault", "memlock"], |lib| {
        let context = lib.open(0, true).unwrap();
        let refused = Some(libc::ENOMEM);
        assert_eq!(registrations(lib, context), [refused, refused, None, None]);
    });
}

#[test]
fn no_devx() {
    inside("no_devx", &["--fault", "devx"], |lib| {
        assert_eq!(errno(lib.open(0, true)), Some(libc::EPERM));
        let context = lib.open(0, false).unwrap();
        assert!(registrations(lib, context)[0].is_none());
        let question = QueryHcaCap { cap_type: CapType::GENERAL, current: true, uid: 0 };
        assert!(lib.general(context, &question).is_err());
    });
}

/// Sends a CREATE_QP that names no protection domain. Returns the error code, and the status in the output mailbox.
fn refused_qp(lib: &Mlx5) -> (Option<i32>, Option<CmdStatus>) {
    let context = lib.open(0, true).unwrap();
    let (error, refusal) = lib.create(context, &CreateQp::default()).err().unwrap();
    (error.raw_os_error(), refusal.map(|refusal| refusal.status))
}

#[test]
fn a_refusal_has_a_status() {
    inside("a_refusal_has_a_status", &[], |lib| {
        assert_eq!(refused_qp(lib), (Some(libc::EREMOTEIO), Some(CmdStatus::BAD_RES)));
    });
}

#[test]
fn a_refusal_on_an_old_kernel_has_an_error_code_only() {
    inside("a_refusal_on_an_old_kernel_has_an_error_code_only", &["--fault", "old-kernel"], |lib| {
        assert_eq!(refused_qp(lib), (Some(libc::EINVAL), None));
    });
}

#[test]
fn a_refusal_has_an_unknown_syndrome() {
    inside("a_refusal_has_an_unknown_syndrome", &["--fault", "syndromes"], |lib| {
        let context = lib.open(0, true).unwrap();
        let refusal = lib.create(context, &CreateQp::default()).err().unwrap().1.unwrap();
        assert_eq!(refusal.status, CmdStatus::BAD_RES);
        assert!(refusal.syndrome != 0 && rushmem_softnic::reason(refusal.syndrome).is_none(), "{refusal}");
    });
}

#[test]
fn a_virtual_function_refuses_what_it_does_not_offer() {
    let test = "a_virtual_function_refuses_what_it_does_not_offer";
    inside(test, &["--fault", "virtual-function"], |lib| {
        let context = lib.open(0, true).unwrap();
        let question = QueryHcaCap { cap_type: CapType::GENERAL, current: true, uid: 0 };
        let general: HcaCap = lib.general(context, &question).unwrap().page.get();
        assert!(
            !general.ece_support && !general.dp_ordering_ooo_rw_rc && !general.init2_lag_tx_port_affinity
        );
        for (ece, status) in [(0, CmdStatus::BAD_RES), (ECE_VERSION_1, CmdStatus::BAD_PARAM)] {
            let refusal = lib.create(context, &CreateQp { ece, ..CreateQp::default() }).err().unwrap().1;
            assert_eq!(refusal.unwrap().status, status);
        }
    });
}

#[test]
fn no_umems() {
    inside("no_umems", &["--fault", "devx-umem"], |lib| {
        let context = lib.open(0, true).unwrap();
        let refused = Some(libc::EOPNOTSUPP);
        assert_eq!(registrations(lib, context), [None, refused, None, refused]);
    });
}

#[test]
fn no_dma_bufs() {
    inside("no_dma_bufs", &["--fault", "dmabuf"], |lib| {
        let context = lib.open(0, true).unwrap();
        let refused = Some(libc::EOPNOTSUPP);
        assert_eq!(registrations(lib, context), [None, None, refused, refused]);
    });
}

#[test]
fn no_doorbell_pages() {
    inside("no_doorbell_pages", &["--fault", "uar"], |lib| {
        let context = lib.open(0, true).unwrap();
        assert_eq!(errno(lib.alloc_uar(context, 0)), Some(libc::ENOMEM));
        // libmlx5 already tried this when it opened the device, and continued without it.
        assert_eq!(errno(lib.alloc_uar(context, 1)), Some(libc::EOPNOTSUPP));
    });
}

#[test]
fn no_blueflame_pages() {
    inside("no_blueflame_pages", &["--fault", "uar-bf"], |lib| {
        let context = lib.open(0, true).unwrap();
        assert_eq!(errno(lib.alloc_uar(context, 0)), Some(libc::ENOMEM));
        lib.alloc_uar(context, 1).unwrap();
    });
}

#[test]
fn unmappable_doorbell_pages() {
    inside("unmappable_doorbell_pages", &["--fault", "uar-mmap"], |lib| {
        let context = lib.open(0, true).unwrap();
        for kind in [0, 1] {
            assert!(lib.alloc_uar(context, kind).is_err());
        }
    });
}

#[test]
fn no_atomics() {
    inside("no_atomics", &["--fault", "atomics=none"], |lib| {
        let context = lib.open(0, true).unwrap();
        let question = |cap_type| QueryHcaCap { cap_type, current: true, uid: 0 };
        let general: HcaCap = lib.general(context, &question(CapType::GENERAL)).unwrap().page.get();
        let atomics: AtomicCaps = lib.general(context, &question(CapType::ATOMIC)).unwrap().page.get();
        assert!(!general.atomic && atomics.atomic_operations == 0);
    });
}

#[test]
fn no_gids() {
    inside("no_gids", &["--fault", "no-gid"], |lib| {
        let context = lib.open(0, true).unwrap();
        let question = QueryRoceAddress { roce_address_index: 3, vhca_port_num: 1, ..Default::default() };
        assert_eq!(lib.general(context, &question).unwrap().address, Default::default());
    });
}

#[test]
fn only_gids_of_the_first_version() {
    inside("only_gids_of_the_first_version", &["--fault", "gid-v1-only"], |lib| {
        let context = lib.open(0, true).unwrap();
        let question =
            |index| QueryRoceAddress { roce_address_index: index, vhca_port_num: 1, ..Default::default() };
        for index in 0..2 {
            let address = lib.general(context, &question(index)).unwrap().address;
            assert_ne!(address.source_l3_address, [0; 16]);
            assert_eq!(address.roce_version, RoceVersion::V1);
        }
        assert_eq!(lib.general(context, &question(2)).unwrap().address, Default::default());
    });
}

#[test]
fn a_port_that_is_down() {
    if !all_there("a_port_that_is_down", &["ibv_devinfo"], "ibverbs-utils") {
        return;
    }
    for link in ["ethernet", "ib"] {
        let output =
            softnic(&["--fault", "port-down", "--link", link], &["ibv_devinfo", "-v"]).output().unwrap();
        let text = output_text(&output);
        assert!(text.contains("PORT_DOWN (1)") && text.contains("phys_state:\t\tDISABLED (3)"), "{text}");
    }
}

#[test]
fn idle_ports_beside_one_that_is_up() {
    if !all_there("idle_ports_beside_one_that_is_up", &["ibv_devinfo"], "ibverbs-utils") {
        return;
    }
    let text = output_text(
        &softnic(&["--devices", "3", "--fault", "idle-ports"], &["ibv_devinfo"]).output().unwrap(),
    );
    let states: Vec<_> = text
        .lines()
        .filter(|line| line.contains("state:"))
        .map(|line| line.contains("PORT_ACTIVE"))
        .collect();
    assert_eq!(states, [true, false, false], "{text}");
}

#[test]
fn tools_see_the_table_of_gids() {
    if !all_there("tools_see_the_table_of_gids", &["ibv_devinfo"], "ibverbs-utils") {
        return;
    }
    let lines = |fault: &str| {
        let output = softnic(&["--fault", fault], &["ibv_devinfo", "-v"]).output().unwrap();
        assert!(output.status.success(), "{}", output_text(&output));
        output_text(&output)
            .lines()
            .filter(|line| line.contains("GID["))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(lines("no-gid"), Vec::<String>::new());
    let v1 = lines("gid-v1-only");
    assert!(v1.len() == 2 && v1.iter().all(|line| line.ends_with("RoCE v1")), "{v1:?}");
}

/// Runs a ping-pong that must fail. Returns the output of both programs.
fn failing_pingpong(test: &str, options: &[&str], gid: &str) -> Option<String> {
    if !all_there(test, &["ibv_rc_pingpong"], "ibverbs-utils") {
        return None;
    }
    let tool = ["timeout", "10", "ibv_rc_pingpong", "-g", gid, "-n", "10", "-e"];
    let outputs = pair(options, &tool);
    assert!(outputs.iter().all(|output| !output.status.success()), "{outputs:?}");
    Some(outputs.iter().map(output_text).collect())
}

#[test]
fn a_peer_that_is_gone() {
    let Some(text) = failing_pingpong("a_peer_that_is_gone", &["--fault", "peer-gone"], "3") else { return };
    // Either retries are exhausted or, at the side that only receives, the timeout expires.
    assert!(text.contains("transport retry counter exceeded"), "{text}");
}

#[test]
fn a_gid_of_the_first_version_is_refused() {
    let test = "a_gid_of_the_first_version_is_refused";
    let Some(text) = failing_pingpong(test, &["--fault", "gid-v1-only"], "1") else { return };
    assert!(text.contains("Failed to modify QP to RTR"), "{text}");
}
