#!/usr/bin/env python3
"""Writes data/search/median_pruner.json: decisions of Optuna's MedianPruner for random trials.

    pip install optuna==5.0.0 && python3 tests/oracle/generate_search.py
"""
import json
import pathlib
import random

import optuna

optuna.logging.set_verbosity(optuna.logging.ERROR)
random.seed(20)


def reports():
    """Returns values for the steps 0, 5, 10 and so on up to a random step. Some steps are missing, and some values are equal or NaN."""
    steps = [step for step in range(0, 5 * random.randint(1, 8), 5) if random.random() < 0.9]
    return {step: random.choice([random.randint(0, 4), random.uniform(0, 4), random.uniform(0, 4), float("nan") if random.random() < 0.2 else 1.5]) for step in steps}


def case():
    pruner = {"n_startup_trials": random.randint(0, 4), "n_warmup_steps": random.choice([0, 0, 7, 20]), "interval_steps": random.choice([1, 1, 3, 10]),
              "n_min_trials": random.choice([1, 1, 2, 3])}
    direction = random.choice(["minimize", "maximize"])
    study = optuna.create_study(direction=direction)
    complete = [reports() for _ in range(random.randint(0, 7))]
    for each in complete:
        study.add_trial(optuna.trial.create_trial(value=0, intermediate_values=each))
    current = {step: random.uniform(1, 4) if direction == "minimize" else random.uniform(0, 3) for step in reports()}
    if random.random() < 0.1:
        current = dict.fromkeys(current, float("nan"))
    trial = optuna.trial.create_trial(state=optuna.trial.TrialState.RUNNING, intermediate_values=current)
    prunes = optuna.pruners.MedianPruner(**pruner).prune(study, trial)
    return {"pruner": pruner, "direction": direction, "complete": [rows(each) for each in complete], "current": rows(current), "prunes": bool(prunes)}


def rows(values):
    return [[step, value if value == value else "nan"] for step, value in values.items()]


cases = [case() for _ in range(500)]
print(sum(each["prunes"] for each in cases), "of", len(cases), "are pruned")
lines = ",\n".join(json.dumps(each) for each in cases)
(pathlib.Path(__file__).parent / "data/search/median_pruner.json").write_text("[" + lines + "]\n")
