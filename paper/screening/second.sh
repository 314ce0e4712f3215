set -u
out=$1; mkdir -p "$out"
screen() { python3 -m paper.screening train "$@" --out "$out" >>"$out/log2-$1-$2.txt" 2>&1; }
( screen Reacher sac --second --steps 60000; screen LunarLander td3 --second --steps 100000 ) &
( screen Ant td3 --second --steps 70000 ) &
( screen Hopper td3 --second --steps 100000 ) &
( screen Ant sac --second --steps 45000 ) &
( nice -n 15 python3 -m paper.screening ppo Hopper-v5 --steps 200000 --jobs 5 --seeds 0 1 2 --only "lag 1: γ=0, ρ n_R√q" "lag 1: γ=0, ρ n_R" "lag 1: γ=ρ, ρ n_R√q" "lag 1: ρ n_R√q" "lag 1: γ=0, 0.3 ρ n_R" --out "$out" >>"$out/log2-ppo.txt" 2>&1 ) &
wait
