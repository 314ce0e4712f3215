#!/usr/bin/env bash
# One block of half an hour on a GPU: three queues of populations side by side, and PPO on idle cores.
#   paper/screening/block.sh FOLDER
set -u
out=$1; mkdir -p "$out"
nvidia-cuda-mps-control -d 2>/dev/null || true
screen() { python3 -m paper.screening train "$@" --out "$out" >>"$out/log-$1-$2-$3.txt" 2>&1; }
( screen Reacher sac --final --steps 60000; screen Ant sac --final --steps 60000; screen Hopper sac --final --steps 80000 ) &
( screen Ant td3 --final --steps 80000; screen Walker td3 --final --steps 100000 ) &
( screen LunarLander td3 --scaled --steps 100000; screen Hopper td3 --final --steps 120000; screen LunarLander td3 --final --steps 100000 ) &
( nice -n 15 python3 -m paper.screening ppo Hopper-v5 --steps 200000 --jobs 7 --seeds 0 1 2 3 4 5 6 7 8 9 --out "$out" >>"$out/log-ppo.txt" 2>&1 ) &
wait
echo finished >>"$out/finished"
