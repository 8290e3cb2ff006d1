# Our programs for libibverbs, which the software ConnectX passes too. They check every byte and every completion.
guests=1
sources="softnic/uverbs/tests/verbs.c softnic/uverbs/tests/xrc.c"
modules="mlx5_ib ib_uverbs vgem"

step verbs verbs mlx5_0 mlx5_0
step "verbs in a dma-buf" verbs mlx5_0 mlx5_0 exported
step xrc xrc mlx5_0 mlx5_0
