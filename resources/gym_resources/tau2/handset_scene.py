"""How a task sets the customer's telephone up, and what it asks of it at the end."""

from __future__ import annotations

from typing import Literal

from gym_runtime import tool

from gym_resources.tau2.handset import Handset
from gym_resources.tau2.phone import Vpn


class HandsetScene(Handset):
    """The functions that a task's ``initialization_actions`` and ``env_assertions`` name, as tools."""

    @tool
    def set_user_info(self, name: str, phone_number: str) -> None:
        """Who the customer is."""
        self.phone.surroundings.name, self.phone.surroundings.phone_number = name, phone_number

    @tool
    def set_user_location(self, abroad: bool) -> None:
        """Where the customer is."""
        self.phone.surroundings.is_abroad = abroad

    @tool
    def turn_airplane_mode_on(self) -> None:
        """Switch airplane mode on."""
        if not self.device.airplane_mode:
            self.toggle_airplane_mode()

    @tool
    def turn_airplane_mode_off(self) -> None:
        """Switch airplane mode off."""
        if self.device.airplane_mode:
            self.toggle_airplane_mode()

    @tool
    def turn_data_on(self) -> None:
        """Switch mobile data on."""
        self.device.data_enabled = True

    @tool
    def turn_data_off(self) -> None:
        """Switch mobile data off."""
        self.device.data_enabled = False
        self.phone.search()

    @tool
    def turn_roaming_on(self) -> None:
        """Switch roaming on."""
        self.device.roaming_enabled = True
        self.phone.search()

    @tool
    def turn_roaming_off(self) -> None:
        """Switch roaming off."""
        self.device.roaming_enabled = False
        self.phone.search()

    @tool
    def turn_data_saver_mode_on(self) -> None:
        """Switch data saver mode on."""
        self.device.data_saver_mode = True

    @tool
    def turn_data_saver_mode_off(self) -> None:
        """Switch data saver mode off."""
        self.device.data_saver_mode = False

    @tool
    def unseat_sim_card(self) -> None:
        """Take the SIM card out."""
        self.device.sim_card_missing = True
        self.phone.search()

    @tool
    def lock_sim_card(self, mode: Literal["pin", "puk"]) -> None:
        """Lock the SIM card."""
        self.device.sim_card_status = "locked_pin" if mode == "pin" else "locked_puk"
        self.phone.search()

    @tool
    def break_apn_settings(self) -> None:
        """Set an access point that does not work."""
        self.device.active_apn_settings.apn_name = "broken"
        self.phone.search()

    @tool
    def break_apn_mms_setting(self) -> None:
        """Take the address for picture messages away."""
        self.device.active_apn_settings.mmsc_url = None

    @tool
    def set_wifi_calling(self, enabled: bool, mms_over_wifi: bool | None = None) -> None:
        """Switch calls, and perhaps picture messages, over Wi-Fi."""
        self.device.wifi_calling_enabled = enabled
        if mms_over_wifi is not None:
            self.device.wifi_calling_mms_over_wifi = mms_over_wifi

    @tool
    def break_vpn(self) -> None:
        """Connect to a VPN that is slow."""
        self.connect_vpn()
        details = self.device.vpn_details = self.device.vpn_details or Vpn()
        details.server_performance = "poor"

    @tool
    def remove_app_permission(self, app_name: str, permission: str) -> bool:
        """Take a permission from an app."""
        app, name = self.device.app_statuses.get(app_name), permission.lower()
        if app is None or name not in app.permissions.__struct_fields__:
            return False
        setattr(app.permissions, name, False)
        return True

    @tool
    def simulate_network_search(self) -> None:
        """Look for a network."""
        self.phone.search()

    @tool
    def assert_airplane_mode_status(self, expected_status: bool) -> bool:
        """Whether airplane mode is so."""
        return self.device.airplane_mode == expected_status

    @tool
    def assert_service_status(self, expected_status: str) -> bool:
        """Whether the connection is so."""
        return self.device.network_connection_status == expected_status

    @tool
    def assert_mobile_data_status(self, expected_status: bool) -> bool:
        """Whether mobile data work, or not."""
        return self.phone.has_data == expected_status

    @tool
    def assert_mobile_roaming_status(self, expected_status: bool) -> bool:
        """Whether roaming is switched so."""
        return self.device.roaming_enabled == expected_status

    @tool
    def assert_mobile_data_saver_mode_status(self, expected_status: bool) -> bool:
        """Whether data saver mode is switched so."""
        return self.device.data_saver_mode == expected_status

    @tool
    def assert_internet_speed(self, expected_speed: float, expected_desc: str | None = None) -> bool:
        """Whether the connection is as fast as that, and is called so."""
        speed, name = self.phone.speed or (0.0, "No Connection")
        return speed >= expected_speed and expected_desc in (None, name.lower(), name)

    @tool
    def assert_internet_not_excellent(self) -> bool:
        """Whether the connection is not excellent."""
        return self.phone.speed is None or self.phone.speed[1] != "Excellent"

    @tool
    def assert_can_send_mms(self, expected_status: bool) -> bool:
        """Whether picture messages can be sent, or not."""
        return self.phone.can_send_mms == expected_status

    @tool
    def assert_mobile_data_usage_exceeded(self, expected_status: bool) -> bool:
        """Whether the plan's data are used up, or not."""
        return self.phone.surroundings.mobile_data_usage_exceeded == expected_status
