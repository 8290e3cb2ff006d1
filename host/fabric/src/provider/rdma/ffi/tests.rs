use std::collections::BTreeMap;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use rdma_sys::ibv_gid_entry;

use super::*;

/// Returns sizes, offsets and constants from the C headers by name, or why they are unavailable.
fn layouts_in_c() -> Result<BTreeMap<String, u64>, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let program = folder.path().join("layout");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/provider/rdma/ffi/layout.c");
    let built = Command::new("cc").arg(source).arg("-o").arg(&program).output();
    let built = built.map_err(|error| format!("cannot start cc: {error}"))?;
    if !built.status.success() {
        return Err(format!("cc: {}", String::from_utf8_lossy(&built.stderr)));
    }
    let output = Command::new(&program).output().map_err(|error| error.to_string())?;
    let parse = |line: &str| {
        let (name, number) = line.split_once(' ')?;
        Some((name.to_owned(), number.parse().ok()?))
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(|line| parse(line).ok_or(format!("`{line}`"))).collect()
}

#[test]
fn layouts_match_the_headers() {
    let c = match layouts_in_c() {
        Ok(c) => c,
        Err(why) => {
            assert!(std::env::var_os("CI_REQUIRE_ALL").is_none(), "{why}");
            return eprintln!("SKIPPED layouts_match_the_headers: {why}");
        }
    };
    let ours = [
        ("mlx5dv_context_attr", size_of::<ContextAttr>()),
        ("mlx5dv_context_attr.comp_mask", offset_of!(ContextAttr, comp_mask)),
        ("mlx5dv_devx_umem", size_of::<DevxUmem>()),
        ("mlx5dv_devx_umem_in", size_of::<UmemIn>()),
        ("mlx5dv_devx_umem_in.size", offset_of!(UmemIn, size)),
        ("mlx5dv_devx_umem_in.access", offset_of!(UmemIn, access)),
        ("mlx5dv_devx_umem_in.pgsz_bitmap", offset_of!(UmemIn, pgsz_bitmap)),
        ("mlx5dv_devx_umem_in.comp_mask", offset_of!(UmemIn, comp_mask)),
        ("mlx5dv_devx_umem_in.dmabuf_fd", offset_of!(UmemIn, dmabuf_fd)),
        ("mlx5dv_devx_event_channel", size_of::<EventChannel>()),
        ("mlx5dv_devx_async_event_hdr.out_data", offset_of!(DevxEvent, entry)),
        ("ibv_async_event", size_of::<AsyncEvent>()),
        ("ibv_async_event.element.port_num", offset_of!(AsyncEvent, port)),
        ("ibv_async_event.event_type", offset_of!(AsyncEvent, event_type)),
        ("IBV_EVENT_DEVICE_FATAL", event_type::DEVICE_FATAL as usize),
        ("IBV_EVENT_PORT_ACTIVE", event_type::PORT_ACTIVE as usize),
        ("IBV_EVENT_PORT_ERR", event_type::PORT_ERR as usize),
        ("IBV_EVENT_LID_CHANGE", event_type::LID_CHANGE as usize),
        ("IBV_EVENT_PKEY_CHANGE", event_type::PKEY_CHANGE as usize),
        ("IBV_EVENT_GID_CHANGE", event_type::GID_CHANGE as usize),
        ("mlx5dv_devx_uar", size_of::<DevxUar>()),
        ("mlx5dv_devx_uar.base_addr", offset_of!(DevxUar, base_addr)),
        ("mlx5dv_devx_uar.page_id", offset_of!(DevxUar, page_id)),
        ("mlx5dv_devx_uar.mmap_off", offset_of!(DevxUar, mmap_off)),
        ("mlx5dv_devx_uar.comp_mask", offset_of!(DevxUar, comp_mask)),
        ("mlx5dv_pd", size_of::<DvPd>()),
        ("mlx5dv_pd.comp_mask", offset_of!(DvPd, comp_mask)),
        ("mlx5dv_ah", size_of::<DvAh>()),
        ("mlx5dv_ah.comp_mask", offset_of!(DvAh, comp_mask)),
        ("mlx5_wqe_av", size_of::<Av>()),
        ("mlx5_wqe_av.stat_rate_sl", offset_of!(Av, stat_rate_sl)),
        ("mlx5_wqe_av.rlid", offset_of!(Av, rlid)),
        ("mlx5_wqe_av.rmac", offset_of!(Av, rmac)),
        ("mlx5_wqe_av.hop_limit", offset_of!(Av, hop_limit)),
        ("mlx5_wqe_av.rgid", offset_of!(Av, rgid)),
        ("mlx5dv_obj", size_of::<DvObj>()),
        ("mlx5dv_obj.ah", offset_of!(DvObj, ah)),
        ("mlx5dv_obj.pd", offset_of!(DvObj, pd)),
        ("ibv_gid_entry", size_of::<ibv_gid_entry>()),
        ("MLX5DV_CONTEXT_FLAGS_DEVX", CONTEXT_DEVX as usize),
        ("MLX5DV_UMEM_MASK_DMABUF", UMEM_DMABUF as usize),
        ("MLX5DV_OBJ_AH", OBJ_AH as usize),
        ("MLX5DV_OBJ_PD", OBJ_PD as usize),
        ("MLX5DV_UAR_ALLOC_TYPE_BF", uar_type::BF as usize),
        ("MLX5DV_UAR_ALLOC_TYPE_NC", uar_type::NC as usize),
    ];
    let ours: BTreeMap<_, _> = ours.into_iter().map(|(name, n)| (name.to_owned(), n as u64)).collect();
    assert_eq!(ours, c);
}
