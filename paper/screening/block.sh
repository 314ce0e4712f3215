#!/usr/bin/env bash
# One block of half an hour on a GPU: three queues of populations side by side, and PPO on idle cores.
#   paper/screening/block.sh FOLDER
set -u
out=$1; mkdir -p "$out"
nvidia-cuda-mps-control -d 2>/dev/null || true
screen() { python3 -m paper.screening "$@" --out "$out" >>"$out/log-$1-$2-${3:-}.txt" 2>&1; }
( screen train Reacher sac --steps 60000; screen train Ant sac --steps 60000; screen train Hopper sac --steps 80000 ) &
( screen train Ant td3 --steps 80000; screen train Walker td3 --steps 100000 ) &
( screen train Hopper td3 --steps 120000; screen train LunarLander td3 --steps 100000; screen train LunarLander td3 --scaled --steps 100000 ) &
( nice -n 15 python3 -m paper.screening ppo Hopper-v5 --steps 200000 --jobs 6 --seeds 0 1 2 3 4 5 6 7 8 9 --out "$out" >>"$out/log-ppo.txt" 2>&1 ) &
wait
echo finished >>"$out/finished"
