"""What the authors of FGD (ATC 2023) measured on each pod list of the openb experiment."""

from __future__ import annotations

from collections.abc import Mapping

PUBLISHED_RUNS = 10
PUBLISHED: Mapping[str, Mapping[str, tuple[int, int]]] = {
    "default": {"random": (86_30, 33), "bestfit": (92_86, 14), "fgd": (95_23, 11)},
    "gpushare40": {"random": (84_86, 34), "bestfit": (91_44, 20), "fgd": (93_96, 7)},
    "gpushare60": {"random": (82_81, 35), "bestfit": (89_06, 18), "fgd": (91_25, 13)},
    "gpushare80": {"random": (80_62, 28), "bestfit": (86_66, 24), "fgd": (89_08, 11)},
    "gpushare100": {"random": (78_90, 15), "bestfit": (84_62, 22), "fgd": (86_64, 16)},
    "gpuspec10": {"random": (86_26, 25), "bestfit": (93_10, 21), "fgd": (94_66, 19)},
    "gpuspec20": {"random": (85_90, 35), "bestfit": (88_46, 12), "fgd": (94_66, 13)},
    "gpuspec25": {"random": (85_42, 34), "bestfit": (85_67, 20), "fgd": (93_91, 11)},
    "gpuspec33": {"random": (83_87, 26), "bestfit": (80_39, 27), "fgd": (87_84, 18)},
    "multigpu20": {"random": (86_92, 52), "bestfit": (93_73, 25), "fgd": (95_53, 16)},
    "multigpu30": {"random": (86_63, 47), "bestfit": (94_57, 24), "fgd": (96_36, 10)},
    "multigpu40": {"random": (85_38, 76), "bestfit": (95_10, 23), "fgd": (96_91, 10)},
    "multigpu50": {"random": (81_28, 83), "bestfit": (95_62, 18), "fgd": (97_09, 11)},
    "cpu050": {"random": (89_02, 26), "bestfit": (93_56, 13), "fgd": (95_00, 11)},
    "cpu100": {"random": (87_44, 28), "bestfit": (93_26, 13), "fgd": (95_21, 14)},
    "cpu200": {"random": (83_03, 27), "bestfit": (92_15, 21), "fgd": (94_82, 16)},
    "cpu250": {"random": (80_00, 33), "bestfit": (91_21, 25), "fgd": (93_20, 29)},
}  # fmt: skip
"""What the paper's authors measured at 100 %, the mean and the standard deviation of their runs, in hundredths of a
percent: from their repository's analysis_allo_discrete.csv."""
