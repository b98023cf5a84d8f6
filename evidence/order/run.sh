#!/usr/bin/env bash
# Runs the experiment of evidence/plans/order.md, from the root of the repository:
#     evidence/order/run.sh FOLDER choose    # validation questions: C stated and C the mean, three and six epochs
#     evidence/order/run.sh FOLDER test EPOCHS_STATED EPOCHS_MEAN BEST    # test questions; BEST is stated or mean
#     evidence/order/run.sh FOLDER rounds EPOCHS_STATED EPOCHS_MEAN BEST  # the better one in three rounds
#     evidence/order/run.sh FOLDER rewards EPOCHS_STATED EPOCHS_MEAN BEST # the other rewards of the ablation
# A folder for each seed and setting of dpo; a stopped run goes on. SEEDS and CORES may be set.
set -euo pipefail
folder=$1 part=$2
seeds=${SEEDS:-42 1 2 3 4}

run() { # run SEED NAME DPO KEY=VALUE TARGET...
    local seed=$1 name=$2 dpo=$3 more=$4
    shift 4
    .venv/bin/snakemake --workflow-profile workflow/profiles/demo --cores "${CORES:-2}" --directory "$folder/$seed-$name" \
        --configfile config.yaml config/demo.yaml evidence/order/order.yaml --config seed="$seed" "dpo=$dpo" "$more" -- "$@"
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

test_rows() { # test_rows SEED NAME DPO ROW...: of both sets, with every reading of each distribution
    local seed=$1 name=$2 dpo=$3
    shift 3
    run "$seed" "$name" "$dpo" evaluation="{readout: mode}" $(rows arithmetic "$@") $(rows worldfacts "$@")
}

candidates="results/arithmetic/smollm2/candidates.jsonl results/worldfacts/smollm2/candidates.jsonl"
for seed in $seeds; do
    if [ "$part" = choose ]; then
        warm=$(rows arithmetic-validation sft; rows worldfacts-validation sft)
        rewarded=$(rows arithmetic-validation orce; rows worldfacts-validation orce)
        run "$seed" stated-3 "{epochs: 3}" seed="$seed" $warm $candidates
        for setting in mean-6 mean-3 stated-6; do start_from "$seed" "$setting"; done
        for reference in stated mean; do
            for epochs in 3 6; do
                run "$seed" "$reference-$epochs" "{reference: $reference, epochs: $epochs}" seed="$seed" $rewarded
            done
        done
        continue
    fi
    stated=$3 mean=$4 best=$5
    with_mean="{reference: mean, epochs: $mean}"
    run "$seed" stated-3 "{epochs: 3}" seed="$seed" $candidates
    for setting in "mean-$mean" "stated-$stated"; do start_from "$seed" "$setting"; done
    case $part in
    test)
        test_rows "$seed" "mean-$mean" "$with_mean" sft sft_all orce orce-sc-surrogate
        test_rows "$seed" "stated-$stated" "{reference: stated, epochs: $stated}" orce
        ;;
    rounds)
        start_from "$seed" rounds
        epochs=$mean
        [ "$best" = mean ] || epochs=$stated
        test_rows "$seed" rounds "{reference: $best, epochs: $((epochs / 3)), rounds: 3}" orce
        ;;
    rewards) test_rows "$seed" "mean-$mean" "$with_mean" orce-nrd orce-numeric orce-sayself ;;
    esac
done
