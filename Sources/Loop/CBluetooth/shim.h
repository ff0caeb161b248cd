// libbluetooth: what D-Bus does not tell about an adapter. Loaded when somebody asks: see CDBus.h for why.
#include <dlfcn.h>
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

static inline void *meshpost_bluetooth_find(const char *name) {
  void *library = dlopen("libbluetooth.so.3", RTLD_NOW | RTLD_LOCAL);
  return library ? dlsym(library, name) : NULL;
}

// 0 when the adapter hciN was found; what is not to be had is -1. 1 when the library is not installed.
static inline int meshpost_controller_read(int number, struct meshpost_controller *found) {
  __typeof__(&hci_devinfo) devinfo = (__typeof__(&hci_devinfo))meshpost_bluetooth_find("hci_devinfo");
  __typeof__(&hci_open_dev) open_dev = (__typeof__(&hci_open_dev))meshpost_bluetooth_find("hci_open_dev");
  __typeof__(&hci_close_dev) close_dev = (__typeof__(&hci_close_dev))meshpost_bluetooth_find("hci_close_dev");
  __typeof__(&hci_read_local_version) read_version =
      (__typeof__(&hci_read_local_version))meshpost_bluetooth_find("hci_read_local_version");
  struct hci_dev_info info;
  struct hci_version version;
  found->bus = found->manufacturer = found->hci_version = found->revision = -1;
  if (!devinfo || !open_dev || !close_dev || !read_version) return 1;
  if (devinfo(number, &info) < 0) return -1;
  found->bus = info.type & 0x0f;
  int device = open_dev(number);
  if (device < 0) return 0;
  if (read_version(device, &version, 1000) == 0) {
    found->manufacturer = version.manufacturer;
    found->hci_version = version.hci_ver;
    found->revision = version.hci_rev;
  }
  close_dev(device);
  return 0;
}

static inline const char *meshpost_company(int number) {
  __typeof__(&bt_compidtostr) name = (__typeof__(&bt_compidtostr))meshpost_bluetooth_find("bt_compidtostr");
  return number < 0 || !name ? "" : name(number);
}
