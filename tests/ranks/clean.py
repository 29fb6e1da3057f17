"""Provides the environment without the variables of launchers and without the user's configuration files."""
import os
import re

LAUNCHERS = re.compile("(RANK|WORLD_SIZE|PET_.*|LOCAL_.*|GROUP_.*|ROLE_.*|MASTER_.*|TORCHELASTIC_.*|HASTEN_.*|OMPI_.*|PMIX?_.*|MPI_.*|MV2_.*|SLURM_.*"
                       "|JOB_COMPLETION_INDEX|V[CK]_TASK_INDEX|KUBERNETES_.*|PBS_JOBID|LSB_JOBID)$")
CLEAN = {name: value for name, value in os.environ.items() if not LAUNCHERS.match(name)} | {"HASTEN_NO_CONFIG_FILE": "1"}
