#!/usr/bin/env bash
# Runs the experiment of evidence/plans/order.md, from the root of the repository:
#     evidence/order/run.sh FOLDER choose    # validation questions: C stated and C the mean, three and six epochs
#     evidence/order/run.sh FOLDER test EPOCHS_STATED EPOCHS_MEAN BEST    # test questions; BEST is stated or mean
# A folder for each seed and setting of dpo; a stopped run goes on. SEEDS and CORES may be set.
set -euo pipefail
folder=$1 part=$2
seeds=${SEEDS:-42 1 2 3 4}

run() { # run SEED NAME DPO TARGET...
    local seed=$1 name=$2 dpo=$3
    shift 3
    .venv/bin/snakemake --workflow-profile workflow/profiles/demo --cores "${CORES:-2}" --directory "$folder/$seed-$name" \
        --configfile config.yaml config/demo.yaml evidence/order/order.yaml --config seed="$seed" "dpo=$dpo" -- "$@"
}

# A setting starts from the seed's samples, warm start and candidates.
start_from() { # start_from SEED NAME
    if [ ! -e "$folder/$1-$2" ]; then
        rm -rf "$folder/$1-$2.partial"
        cp -a "$folder/$1-stated-3" "$folder/$1-$2.partial"
        mv "$folder/$1-$2.partial" "$folder/$1-$2"
    fi
}

rows() { # rows DATASET ROW...
    local dataset=$1
    shift
    printf "results/$dataset/smollm2/%s/metrics.json\n" "$@"
}

for seed in $seeds; do
    if [ "$part" = choose ]; then
        warm=$(rows arithmetic-validation sft; rows worldfacts-validation sft)
        rewarded=$(rows arithmetic-validation orce; rows worldfacts-validation orce)
        candidates="results/arithmetic/smollm2/candidates.jsonl results/worldfacts/smollm2/candidates.jsonl"
        run "$seed" stated-3 "{epochs: 3}" $warm $candidates
        for setting in mean-6 mean-3 stated-6; do start_from "$seed" "$setting"; done
        for reference in stated mean; do
            for epochs in 3 6; do
                run "$seed" "$reference-$epochs" "{reference: $reference, epochs: $epochs}" $rewarded
            done
        done
    else
        stated=$3 mean=$4 best=$5
        controls="sft sft_all orce orce-nrd orce-numeric orce-sayself orce-sc-surrogate"
        run "$seed" "mean-$mean" "{reference: mean, epochs: $mean}" $(rows arithmetic $controls) $(rows worldfacts $controls)
        run "$seed" "stated-$stated" "{reference: stated, epochs: $stated}" $(rows arithmetic orce) $(rows worldfacts orce)
        start_from "$seed" rounds
        epochs=$mean
        [ "$best" = mean ] || epochs=$stated
        run "$seed" rounds "{reference: $best, epochs: $((epochs / 3)), rounds: 3}" $(rows arithmetic orce) $(rows worldfacts orce)
    fi
done
