"""Loop IR -> loop IR: the mapping passes, one a file, each keeping the kernel's meaning.

Before a schedule: hoist_conditions, share_conditions, accumulate, privatise. Schedules choose and
combine the passes for a nest (nest_schedule: contraction_nest, row_block, leaf_schedule), from
tile_loop, interchange, register_tile, panels, pack_operand, vector_rows and transposition. After
them: contract_storage, clamp_rows, collapse, parallelise, allocate. The rest is analysis: access,
band, bounds, loops, operands, vector_legality.
"""
