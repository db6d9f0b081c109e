"""What a customer can see and do on the telephone: the tools of the simulated customer."""

from __future__ import annotations

import msgspec
from gym_runtime import Text

from gym_resources.tau2.phone import Apn, Device, Phone, Preference, Vpn
from gym_resources.tau2.refusal import tool

SIM = {
    "active": "Your SIM card is active and working.",
    "missing": "There is no SIM card in the phone.",
    "locked_pin": "The SIM card is locked; it asks for the PIN.",
    "locked_puk": "The SIM card is locked; it asks for the PUK.",
}


def _on(value: bool) -> str:
    return "ON" if value else "OFF"


class Handset:
    """The tools; their answers are texts."""

    def __init__(self, phone: Phone) -> None:
        self.phone = phone

    @property
    def device(self) -> Device:
        return self.phone.device

    def _done(self, said: str) -> Text:
        return Text(f"{said}\nStatus Bar: {self.phone.status_bar}")

    @tool
    def check_status_bar(self) -> Text:
        """See the icons at the top of your phone's screen: signal, mobile data, Wi-Fi, battery."""
        return Text(f"Status Bar: {self.phone.status_bar}")

    @tool
    def check_network_status(self) -> Text:
        """See how your phone is connected: airplane mode, SIM, signal, network type, data, roaming, Wi-Fi."""
        device = self.device
        lines = {
            "Airplane Mode": _on(device.airplane_mode),
            "SIM Card Status": self.phone.sim,
            "Cellular Connection": device.network_connection_status,
            "Cellular Signal": device.network_signal_strength,
            "Cellular Network Type": device.network_technology_connected,
            "Mobile Data": _on(device.data_enabled),
            "Data Roaming": _on(device.roaming_enabled),
            "Wi-Fi": _on(device.wifi_enabled),
            "Wi-Fi Network": device.wifi_ssid or ("connected" if device.wifi_connected else "none"),
        }
        return Text("\n".join(f"{name}: {value}" for name, value in lines.items()))

    @tool
    def check_network_mode_preference(self) -> Text:
        """See which type of network your phone prefers."""
        return Text(f"Network Mode Preference: {self.device.network_mode_preference}")

    @tool
    def set_network_mode_preference(self, mode: Preference) -> Text:
        """Choose the type of network that your phone prefers."""
        self.device.network_mode_preference = mode
        self.phone.search()
        return self._done(f"Preferred Network Mode set to: {mode}")

    @tool
    def run_speed_test(self) -> Text:
        """Measure how fast your mobile internet is."""
        speed = self.phone.speed
        if speed is None:
            return Text("Speed test failed: No Connection.")
        return Text(f"Speed Test Result: {speed[0]:.2f} Mbps ({speed[1]}).")

    @tool
    def toggle_airplane_mode(self) -> Text:
        """Switch airplane mode on or off."""
        device = self.device
        device.airplane_mode = not device.airplane_mode
        if device.airplane_mode or device.wifi_enabled:
            device.wifi_connected, device.wifi_ssid, device.wifi_signal_strength = False, None, "none"
        if device.airplane_mode:
            device.vpn_connected, device.vpn_details = False, None
        self.phone.search()
        return self._done(f"Airplane Mode is now {_on(device.airplane_mode)}.")

    @tool
    def check_sim_status(self) -> Text:
        """See whether your SIM card works, is missing, or is locked."""
        return Text(SIM[self.phone.sim])

    @tool
    def reseat_sim_card(self) -> Text:
        """Take the SIM card out and put it back in."""
        self.device.sim_card_missing = False
        self.phone.search()
        return self._done("SIM card re-seated.")

    @tool
    def toggle_data(self) -> Text:
        """Switch mobile data on or off."""
        self.device.data_enabled = not self.device.data_enabled
        self.phone.search()
        return self._done(f"Mobile Data is now {_on(self.device.data_enabled)}.")

    @tool
    def toggle_roaming(self) -> Text:
        """Switch data roaming on or off."""
        self.device.roaming_enabled = not self.device.roaming_enabled
        self.phone.search()
        return self._done(f"Data Roaming is now {_on(self.device.roaming_enabled)}.")

    @tool
    def check_data_restriction_status(self) -> Text:
        """See whether something on your phone limits mobile data."""
        return Text(f"Data Saver mode is {_on(self.device.data_saver_mode)}.")

    @tool
    def toggle_data_saver_mode(self) -> Text:
        """Switch data saver mode on or off."""
        self.device.data_saver_mode = not self.device.data_saver_mode
        return self._done(f"Data Saver Mode is now {_on(self.device.data_saver_mode)}.")

    @tool
    def check_apn_settings(self) -> Text:
        """See the settings of the access point: its name, and the address for picture messages."""
        apn = self.device.active_apn_settings
        return Text(f"Current APN Name: {apn.apn_name}\nMMSC URL: {apn.mmsc_url or 'Not Set'}")

    @tool
    def set_apn_settings(self, apn_settings: Apn) -> Text:
        """Set the settings of the access point."""
        self.device.active_apn_settings = apn_settings
        self.phone.search()
        return self._done(f"APN settings set to: {apn_settings.apn_name}")

    @tool
    def reset_apn_settings(self) -> Text:
        """Reset the settings of the access point; it happens at the next reboot."""
        self.device.active_apn_settings.reset_at_reboot = True
        self.phone.search()
        return self._done("APN settings will be reset at the next reboot.")

    @tool
    def check_wifi_status(self) -> Text:
        """See whether Wi-Fi is on, and the network that your phone is connected to."""
        device = self.device
        if not device.wifi_connected:
            return Text(f"Wi-Fi is {_on(device.wifi_enabled)}, and not connected to a network.")
        return Text(f"Wi-Fi is connected to '{device.wifi_ssid}', signal: {device.wifi_signal_strength}.")

    @tool
    def toggle_wifi(self) -> Text:
        """Switch Wi-Fi on or off."""
        device = self.device
        if device.airplane_mode:
            return self._done("Wi-Fi cannot be switched while Airplane Mode is ON.")
        device.wifi_enabled = not device.wifi_enabled
        if not device.wifi_enabled:
            device.wifi_connected, device.wifi_ssid, device.wifi_signal_strength = False, None, "none"
        return self._done(f"Wi-Fi is now {_on(device.wifi_enabled)}.")

    @tool
    def check_wifi_calling_status(self) -> Text:
        """See whether calls go over Wi-Fi."""
        return Text(f"Wi-Fi Calling is {_on(self.device.wifi_calling_enabled)}.")

    @tool
    def toggle_wifi_calling(self) -> Text:
        """Switch calls over Wi-Fi on or off."""
        self.device.wifi_calling_enabled = not self.device.wifi_calling_enabled
        return self._done(f"Wi-Fi Calling is now {_on(self.device.wifi_calling_enabled)}.")

    @tool
    def check_vpn_status(self) -> Text:
        """See whether your phone uses a VPN."""
        device = self.device
        if not device.vpn_connected:
            return Text("There is no VPN connection.")
        return Text(f"VPN is connected: {msgspec.json.encode(device.vpn_details).decode()}")

    @tool
    def connect_vpn(self) -> Text:
        """Connect to your VPN."""
        if self.device.vpn_connected:
            return Text("VPN is connected already.")
        self.device.vpn_connected = True
        self.device.vpn_details = Vpn("192.168.1.1", "OpenVPN", "excellent")
        return self._done("VPN connected.")

    @tool
    def disconnect_vpn(self) -> Text:
        """End the VPN connection."""
        if not self.device.vpn_connected:
            return self._done("There is no VPN connection.")
        self.device.vpn_connected, self.device.vpn_details = False, None
        return self._done("VPN disconnected.")

    @tool
    def check_installed_apps(self) -> Text:
        """See which apps are on your phone."""
        return Text(f"Installed apps: {', '.join(self.device.app_statuses)}")

    @tool
    def check_app_status(self, app_name: str) -> Text:
        """See the details of an app."""
        return self.check_app_permissions(app_name)

    @tool
    def check_app_permissions(self, app_name: str) -> Text:
        """See what an app is permitted."""
        app = self.device.app_statuses.get(app_name)
        if app is None:
            return Text(f"There is no app '{app_name[:100]}' on this phone.")
        granted = [name for name, given in msgspec.structs.asdict(app.permissions).items() if given]
        return Text(f"App '{app_name}' has permission for: {', '.join(granted) or 'nothing'}.")

    @tool
    def grant_app_permission(self, app_name: str, permission: str) -> Text:
        """Permit an app something: sms, storage, phone or network."""
        app, name = self.device.app_statuses.get(app_name), permission.lower()
        if app is None or name not in app.permissions.__struct_fields__:
            return self._done("Error. There is no such app or permission.")
        setattr(app.permissions, name, True)
        return self._done(f"Permission '{name}' granted to app '{app_name}'.")

    @tool
    def can_send_mms(self) -> Text:
        """Try whether picture messages can be sent."""
        return Text(f"Your messaging app {'can' if self.phone.can_send_mms else 'cannot'} send MMS messages.")

    @tool
    def reboot_device(self) -> Text:
        """Restart your phone."""
        if self.device.active_apn_settings.reset_at_reboot:
            self.device.active_apn_settings = Apn()
        self.phone.search()
        return self._done("The phone was restarted.")

    @tool
    def check_payment_request(self) -> Text:
        """See whether you were asked to pay a bill."""
        request = self.phone.surroundings.payment_request
        if request is None:
            return Text("No payment was requested.")
        return Text(f"Bill {request.bill_id} over {request.amount_due} USD is to be paid.")

    @tool
    def make_payment(self) -> Text:
        """Pay the bill that you were asked to pay."""
        request = self.phone.surroundings.payment_request
        if request is None:
            return Text("No payment was requested.")
        request.paid = True
        return Text(f"Bill {request.bill_id} over {request.amount_due} USD is paid.")
