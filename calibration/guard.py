"""Refuses what would be a lie: the wrong GPU, a busy one, a throttled one. Each refusal is one line."""

from __future__ import annotations

from tilewise.calibration.driver import Facts
from tilewise.hwdb import names
from tilewise.hwdb.errors import NotAvailable
from tilewise.hwdb.sku import Sku

MEMORY_SHARE = (0.90, 1.10)  # the driver counts 80 "GB" as 79.6 GiB: 1.07 times 80e9
UTILISATION_MAX = 0.05
TDP_SHARE = 0.99
CLOCK_SHARE = 0.99
HARMFUL = ("hardware slowdown", "software thermal", "hardware thermal", "hardware power brake", "sync boost")


def findings(facts: Facts, sku: Sku) -> list[str]:
    """Why this GPU must not be calibrated as that SKU, one line each; empty when all is well."""
    checks = (_identity, _sharing, _health, _limits)
    return [line for check in checks for line in check(facts, sku)]


def check(facts: Facts, sku: Sku, allow_nonproduction: bool = False) -> bool:
    """Raise NotAvailable (CALIBRATION_REFUSED) unless the GPU may be calibrated; return whether it is production.

    With `allow_nonproduction` nothing is refused, but whatever would have been makes the calibration non-production,
    which it stays for ever: no server publishes it.
    """
    found = findings(facts, sku)
    if found and not allow_nonproduction:
        message = "; ".join(found) + ". --allow-nonproduction measures anyway and marks the result for ever"
        raise NotAvailable(message, reason="CALIBRATION_REFUSED", sku=sku.name, gpu=facts.name)
    return not found


def _identity(facts: Facts, sku: Sku) -> list[str]:
    if facts.vendor == "cpu" or names.not_production(facts.name):
        return [f"{facts.name} is a consumer or workstation card, not the production GPU {sku.name}"]
    lines = []
    known = {sku.name, *sku.names.aliases, *sku.names.families}
    if names.normalise(facts.name) not in known:
        lines.append(f"the driver calls this GPU {facts.name}, which is no name of {sku.name}")
    if facts.sms is not None and facts.sms != sku.sm_count:
        lines.append(f"{facts.name} has {facts.sms} SMs, but {sku.name} has {sku.sm_count}")
    if facts.memory_bytes is not None:
        share = facts.memory_bytes / sku.hbm_bytes
        if not MEMORY_SHARE[0] <= share <= MEMORY_SHARE[1]:
            lines.append(
                f"{facts.name} has {facts.memory_bytes / 1e9:.0f} GB of memory, but {sku.name} has {sku.hbm_bytes / 1e9:.0f} GB"
            )
    return lines


def _sharing(facts: Facts, sku: Sku) -> list[str]:
    lines = []
    if facts.mig:
        lines.append("MIG is on: a slice is not the GPU; switch it off or take another GPU")
    if facts.other_processes:
        lines.append(f"{facts.other_processes} other process(es) hold the GPU; wait until it is free")
    elif facts.utilisation is not None and facts.utilisation > UTILISATION_MAX:
        lines.append(f"the GPU is {facts.utilisation:.0%} busy with others' work; wait until it is idle")
    return lines


def _health(facts: Facts, sku: Sku) -> list[str]:
    lines = []
    if facts.ecc is False:
        lines.append("ECC is off; production runs with it (nvidia-smi -e 1)")
    bad = [reason for reason in facts.throttle if reason in HARMFUL]
    if bad:
        lines.append(f"the GPU is throttled now ({', '.join(bad)}); see to its cooling and power first")
    return lines


def _limits(facts: Facts, sku: Sku) -> list[str]:
    lines = []
    if facts.power_limit_w is not None and facts.power_limit_w < TDP_SHARE * sku.tdp_w:
        lines.append(f"the power limit is {facts.power_limit_w:.0f} W, below the {sku.tdp_w:.0f} W of {sku.name}")
    if facts.max_clock_hz is not None and facts.max_clock_hz < CLOCK_SHARE * sku.clock_boost_hz:
        lines.append(
            f"the clock is held to {facts.max_clock_hz / 1e6:.0f} MHz, below the {sku.clock_boost_hz / 1e6:.0f} MHz of {sku.name}"
        )
    return lines
