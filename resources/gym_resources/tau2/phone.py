"""The customer's telephone and surroundings: what is set, and what follows from it.

Facts, such as which settings break which service and how fast a connection is, are those of tau2-bench.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Sim = Literal["active", "missing", "locked_pin", "locked_puk"]
Technology = Literal["none", "2G", "3G", "4G", "5G"]
Preference = Literal["4g_5g_preferred", "4g_only", "3g_only", "2g_only"]
Strength = Literal["none", "poor", "fair", "good", "excellent"]
Performance = Literal["unknown", "poor", "fair", "good", "excellent"]
Status = Literal["connected", "searching", "no_service", "emergency_only"]

MBPS: dict[Technology, float] = {"none": 0.0, "2G": 0.25, "3G": 3.0, "4G": 55.0, "5G": 275.0}
SHARE: dict[Strength, float] = {"none": 0.0, "poor": 0.2, "fair": 0.5, "good": 0.8, "excellent": 1.0}
ONLY: dict[Preference, Technology] = {"4g_only": "4G", "3g_only": "3G", "2g_only": "2G"}
SLOW_VPN, DATA_SAVER = 0.1, 0.2
GRADES = ((1.0, "Very Poor"), (5.0, "Poor"), (25.0, "Fair"), (100.0, "Good"))


class Apn(msgspec.Struct):
    apn_name: Literal["internet", "broken"] = "internet"
    reset_at_reboot: bool = False
    mms_apn: str | None = "mms"
    mmsc_url: str | None = "http://mms.carrier.com/mms/wapenc"
    mms_proxy: str | None = None
    mms_port: int | None = None


class Vpn(msgspec.Struct):
    server_address: str | None = None
    protocol: str | None = None
    server_performance: Performance = "unknown"


class Permissions(msgspec.Struct):
    sms: bool = False
    storage: bool = False
    phone: bool = False
    network: bool = False


class App(msgspec.Struct):
    app_name: str
    permissions: Permissions = msgspec.field(default_factory=Permissions)


def _apps() -> dict[str, App]:
    return {
        "messaging": App("messaging", Permissions(sms=True, storage=True, phone=True)),
        "browser": App("browser", Permissions(network=True, storage=True)),
    }


class Device(msgspec.Struct):
    sim_card_status: Sim = "active"
    sim_card_missing: bool = False
    airplane_mode: bool = False
    network_signal_strength: Strength = "good"
    network_technology_connected: Technology = "5G"
    network_connection_status: Status = "connected"
    battery_level: int = 80
    data_enabled: bool = True
    roaming_enabled: bool = False
    network_mode_preference: Preference = "4g_5g_preferred"
    active_apn_settings: Apn = msgspec.field(default_factory=Apn)
    wifi_enabled: bool = False
    wifi_connected: bool = False
    wifi_ssid: str | None = None
    wifi_signal_strength: Strength = "none"
    wifi_calling_enabled: bool = False
    wifi_calling_mms_over_wifi: bool = False
    data_saver_mode: bool = False
    vpn_enabled_setting: bool = False
    vpn_connected: bool = False
    vpn_details: Vpn | None = None
    app_statuses: dict[str, App] = msgspec.field(default_factory=_apps)


class PaymentRequest(msgspec.Struct):
    bill_id: str
    amount_due: float
    paid: bool = False


def _signals() -> dict[Technology, Strength]:
    return {"2G": "poor", "3G": "fair", "4G": "good", "5G": "excellent"}


class Surroundings(msgspec.Struct):
    name: str | None = None
    phone_number: str | None = None
    is_abroad: bool = False
    roaming_allowed: bool = False
    signal_strength: dict[Technology, Strength] = msgspec.field(default_factory=_signals)
    mobile_data_usage_exceeded: bool = False
    line_active: bool = True
    payment_request: PaymentRequest | None = None


class Phone(msgspec.Struct):
    """All that the customer's tools see and change."""

    device: Device = msgspec.field(default_factory=Device)
    surroundings: Surroundings = msgspec.field(default_factory=Surroundings)

    @property
    def sim(self) -> Sim:
        return "missing" if self.device.sim_card_missing else self.device.sim_card_status

    def search(self) -> None:
        """Look for a network; the phone is connected if nothing speaks against it."""
        device, around = self.device, self.surroundings
        usable = (
            self.sim == "active"
            and not device.airplane_mode
            and device.active_apn_settings.apn_name != "broken"
            and around.line_active
        )
        technology: Technology = "none"
        if usable:
            technology = ONLY.get(device.network_mode_preference, "5G")
            if technology == "5G" and around.signal_strength.get("5G", "none") == "none":
                technology = "4G"
        device.network_connection_status = "connected" if usable else "no_service"
        device.network_technology_connected = technology
        device.network_signal_strength = around.signal_strength.get(technology, "none")

    @property
    def has_data(self) -> bool:
        """Whether mobile data work."""
        device, around = self.device, self.surroundings
        roaming = not around.is_abroad or (device.roaming_enabled and around.roaming_allowed)
        return (
            not device.airplane_mode
            and device.network_signal_strength != "none"
            and device.network_connection_status != "no_service"
            and roaming
            and device.data_enabled
            and not around.mobile_data_usage_exceeded
        )

    @property
    def speed(self) -> tuple[float, str] | None:
        """Megabits a second and what that is called; None without a connection."""
        if not self.has_data:
            return None
        device = self.device
        found = MBPS[device.network_technology_connected] * SHARE[device.network_signal_strength]
        if device.vpn_connected and device.vpn_details and device.vpn_details.server_performance == "poor":
            found *= SLOW_VPN
        if device.data_saver_mode:
            found *= DATA_SAVER
        found = round(found, 2)
        return found, next((name for limit, name in GRADES if found < limit), "Excellent")

    @property
    def can_send_mms(self) -> bool:
        device, app = self.device, self.device.app_statuses.get("messaging")
        return (
            self.has_data
            and device.network_technology_connected != "2G"
            and not (device.wifi_calling_enabled and device.wifi_calling_mms_over_wifi)
            and device.active_apn_settings.mmsc_url is not None
            and app is not None
            and app.permissions.storage
            and app.permissions.sms
        )

    @property
    def status_bar(self) -> str:
        """What the top of the screen shows."""
        device = self.device
        if device.airplane_mode:
            shown = ["Airplane Mode"]
        else:
            technology = device.network_technology_connected
            shown = [f"Signal: {device.network_signal_strength}"]
            shown += [technology] if technology != "none" else []
            data = device.data_enabled and technology != "none"
            shown.append("Data Enabled" if data else "Data Disabled")
            shown += ["Data Saver"] if data and device.data_saver_mode else []
        if device.wifi_enabled and device.wifi_connected:
            shown.append(f"Wi-Fi: {device.wifi_ssid or 'connected'}")
        shown += ["VPN Connected"] if device.vpn_connected else []
        return " | ".join([*shown, f"Battery {device.battery_level}%"])
