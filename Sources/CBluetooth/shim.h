// libbluetooth: what D-Bus does not tell about an adapter.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <bluetooth/bluetooth.h>
#include <bluetooth/hci.h>
#include <bluetooth/hci_lib.h>

struct meshpost_controller {
  int bus;           // 1: USB, 3: UART, 7: virtual …
  int manufacturer;  // Bluetooth SIG company number; -1: not known
  int hci_version;   // 6: 4.0, 9: 5.0, 13: 5.4 …
  int revision;
};

// 0 when the adapter hciN was found; what is not to be had is -1.
static inline int meshpost_controller_read(int number, struct meshpost_controller *found) {
  struct hci_dev_info info;
  struct hci_version version;
  found->manufacturer = found->hci_version = found->revision = -1;
  if (hci_devinfo(number, &info) < 0) return -1;
  found->bus = info.type & 0x0f;
  int device = hci_open_dev(number);
  if (device < 0) return 0;
  if (hci_read_local_version(device, &version, 1000) == 0) {
    found->manufacturer = version.manufacturer;
    found->hci_version = version.hci_ver;
    found->revision = version.hci_rev;
  }
  hci_close_dev(device);
  return 0;
}

static inline const char *meshpost_company(int number) { return number < 0 ? "" : bt_compidtostr(number); }
