// Prints sizes, offsets and constants of the rdma-core headers, one "name number" pair on each line.
#include <infiniband/mlx5dv.h>
#include <stddef.h>
#include <stdio.h>

#define SIZE(type) printf("%s %zu\n", #type, sizeof(struct type))
#define FIELD(type, field) printf("%s.%s %zu\n", #type, #field, offsetof(struct type, field))
#define VALUE(name) printf("%s %llu\n", #name, (unsigned long long)(name))

int main(void) {
    SIZE(mlx5dv_context_attr);
    FIELD(mlx5dv_context_attr, comp_mask);
    SIZE(mlx5dv_devx_umem);
    SIZE(mlx5dv_devx_umem_in);
    FIELD(mlx5dv_devx_umem_in, size);
    FIELD(mlx5dv_devx_umem_in, access);
    FIELD(mlx5dv_devx_umem_in, pgsz_bitmap);
    FIELD(mlx5dv_devx_umem_in, comp_mask);
    FIELD(mlx5dv_devx_umem_in, dmabuf_fd);
    SIZE(mlx5dv_devx_event_channel);
    FIELD(mlx5dv_devx_async_event_hdr, out_data);
    SIZE(ibv_async_event);
    FIELD(ibv_async_event, element.port_num);
    FIELD(ibv_async_event, event_type);
    VALUE(IBV_EVENT_DEVICE_FATAL);
    VALUE(IBV_EVENT_PORT_ACTIVE);
    VALUE(IBV_EVENT_PORT_ERR);
    VALUE(IBV_EVENT_LID_CHANGE);
    VALUE(IBV_EVENT_PKEY_CHANGE);
    VALUE(IBV_EVENT_GID_CHANGE);
    SIZE(mlx5dv_devx_uar);
    FIELD(mlx5dv_devx_uar, base_addr);
    FIELD(mlx5dv_devx_uar, page_id);
    FIELD(mlx5dv_devx_uar, mmap_off);
    FIELD(mlx5dv_devx_uar, comp_mask);
    SIZE(mlx5dv_pd);
    FIELD(mlx5dv_pd, comp_mask);
    SIZE(mlx5dv_ah);
    FIELD(mlx5dv_ah, comp_mask);
    SIZE(mlx5_wqe_av);
    FIELD(mlx5_wqe_av, stat_rate_sl);
    FIELD(mlx5_wqe_av, rlid);
    FIELD(mlx5_wqe_av, rmac);
    FIELD(mlx5_wqe_av, hop_limit);
    FIELD(mlx5_wqe_av, rgid);
    SIZE(mlx5dv_obj);
    FIELD(mlx5dv_obj, ah);
    FIELD(mlx5dv_obj, pd);
    SIZE(ibv_gid_entry);
    VALUE(MLX5DV_CONTEXT_FLAGS_DEVX);
    VALUE(MLX5DV_UMEM_MASK_DMABUF);
    VALUE(MLX5DV_OBJ_AH);
    VALUE(MLX5DV_OBJ_PD);
    VALUE(MLX5DV_UAR_ALLOC_TYPE_BF);
    VALUE(MLX5DV_UAR_ALLOC_TYPE_NC);
    return 0;
}
