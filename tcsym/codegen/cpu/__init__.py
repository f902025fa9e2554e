"""What processors need: vector memory, shuffles, blocks in registers, streams, tasks."""
