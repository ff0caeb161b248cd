// SPDX-License-Identifier: MIT

/// How an operation on the bus failed, by what follows from it. Where it comes from: docs/bluetooth.md.
public enum BluetoothFailure: Equatable, Sendable {
  /// Another operation is under way, ours or somebody's.
  case inProgress
  case alreadyDone
  /// The adapter is off, or just going off.
  case notReady
  /// Switched off by rfkill.
  case blocked
  /// Wrong or missing keys, a refused or missing PIN.
  case authentication
  /// The object is gone: a removed device, a restarted bluetoothd, a stale cache.
  case unknownObject
  /// The device cannot be reached, or broke off (`le-connection-abort-by-local` and its kin).
  case aborted(String)
  /// Somebody else holds it.
  case inUse(String)
  /// D-Bus's policy does not let this user.
  case notAllowed
  case timedOut
  case other(String)
}

/// Why the Bluetooth link is down, in terms an operator can act on.
public enum BluetoothTrouble: Error, Equatable, Sendable, CustomStringConvertible {
  case noService(String)
  case noAdapter
  case poweredOff(adapter: String)
  case blocked(adapter: String)
  case notFound(String)
  case several([String])
  case wantsPIN(address: String)
  case wrongPIN(address: String)
  case bondLost(address: String)
  case noUART(address: String)
  case inUse(address: String, String)
  case notAllowed
  case lost(address: String)
  case silent(address: String)
  case failed(step: String, String)

  public var description: String {
    switch self {
    case .noService(let words): "Bluetooth's service does not answer: \(words)"
    case .noAdapter: "there is no Bluetooth adapter"
    case .poweredOff(let adapter): "the Bluetooth adapter \(adapter) is off"
    case .blocked(let adapter): "the Bluetooth adapter \(adapter) is blocked (rfkill)"
    case .notFound(let target): "\(target) is not in range"
    case .several(let names): "several radios were found: \(names.joined(separator: ", "))"
    case .wantsPIN(let address): "\(address) wants to be paired, and no PIN is configured"
    case .wrongPIN(let address): "\(address) refused the PIN"
    case .bondLost(let address): "\(address) has forgotten this gateway, or its keys do not fit any more"
    case .noUART(let address): "\(address) is no MeshCore companion: it has no UART service"
    case .inUse(let address, let words): "\(address) is used by another program (\(words))"
    case .notAllowed: "this user may not use Bluetooth"
    case .lost(let address): "the connection to \(address) is lost"
    case .silent(let address): "\(address) was connected but did not answer"
    case .failed(let step, let words): "\(step) failed: \(words)"
    }
  }

  /// One sentence in the imperative, shown by `status`.
  public var remedy: String {
    switch self {
    case .noService: "Nothing to do if it restarts; else look at `systemctl status bluetooth`."
    case .noAdapter: "Plug an adapter in, or look for its firmware in the kernel's log (dmesg)."
    case .poweredOff: "Switch it on (`bluetoothctl power on`), or set radio.power_on."
    case .blocked: "Lift it: `rfkill unblock bluetooth`, or set radio.unblock."
    case .notFound: "Check that the radio is on, near, and not connected to a phone: it then stops advertising."
    case .several: "Name one of them as radio.link, such as ble:ADDRESS."
    case .wantsPIN(let address), .wrongPIN(let address):
      "Set radio.pin to what the radio's display or its settings show, or run `meshpost radio pair \(address)`."
    case .bondLost(let address):
      "Run `meshpost radio pair \(address)`, or set radio.pin: then it is paired anew by itself."
    case .noUART: "Name another device; `meshpost radio scan` lists the radios in range."
    case .inUse: "End the other program: the radio has one client at a time."
    case .notAllowed: "See `meshpost doctor bluetooth`: the service's user needs the D-Bus policy in deploy/."
    case .lost, .silent, .failed: "Nothing to do: it is tried again by itself."
    }
  }
}
