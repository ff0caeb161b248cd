// SPDX-License-Identifier: MIT

/// How an operation on the bus failed, classified by the reaction. Sources: docs/bluetooth.md.
public enum BluetoothFailure: Equatable, Sendable {
  /// Another operation is in progress, ours or another program's.
  case inProgress
  case alreadyDone
  /// The adapter is off, or being switched off.
  case notReady
  /// Switched off by rfkill.
  case blocked
  /// Wrong or missing keys, a refused or missing PIN.
  case authentication
  /// The object is gone: a removed device, a restarted bluetoothd, a stale cache.
  case unknownObject
  /// The device cannot be reached, or the connection was aborted (`le-connection-abort-by-local` and similar).
  case aborted(String)
  /// Another program uses it.
  case inUse(String)
  /// The D-Bus policy denies access to this user.
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
    case .noService(let words): "the Bluetooth service does not answer: \(words)"
    case .noAdapter: "no Bluetooth adapter found"
    case .poweredOff(let adapter): "the Bluetooth adapter \(adapter) is off"
    case .blocked(let adapter): "the Bluetooth adapter \(adapter) is blocked (rfkill)"
    case .notFound(let target): "\(target) is not in range"
    case .several(let names): "several radios were found: \(names.joined(separator: ", "))"
    case .wantsPIN(let address): "\(address) requires pairing, and no PIN is configured"
    case .wrongPIN(let address): "\(address) refused the PIN"
    case .bondLost(let address): "\(address) has lost the bond with this gateway, or its keys no longer match"
    case .noUART(let address): "\(address) is not a MeshCore companion: it has no UART service"
    case .inUse(let address, let words): "\(address) is used by another program (\(words))"
    case .notAllowed: "permission denied: this user cannot use Bluetooth"
    case .lost(let address): "the connection to \(address) is lost"
    case .silent(let address): "\(address) was connected but did not answer"
    case .failed(let step, let words): "\(step) failed: \(words)"
    }
  }

  /// One sentence in the imperative, shown by `status`.
  public var remedy: String {
    switch self {
    case .noService: "Nothing to do if it restarts; otherwise see `systemctl status bluetooth`."
    case .noAdapter: "Plug in an adapter, or check for missing firmware in the kernel's log (dmesg)."
    case .poweredOff: "Switch it on (`bluetoothctl power on`), or set radio.power_on."
    case .blocked: "Run `rfkill unblock bluetooth`, or set radio.unblock."
    case .notFound:
      "Check that the radio is on, in range, and not connected to a phone: a connected radio does not advertise."
    case .several: "Set radio.link to one of them, such as ble:ADDRESS."
    case .wantsPIN(let address), .wrongPIN(let address):
      "Set radio.pin to the PIN from the radio's display or settings, or run `meshpost radio pair \(address)`."
    case .bondLost(let address):
      "Run `meshpost radio pair \(address)`, or set radio.pin: the gateway then pairs again automatically."
    case .noUART: "Select another device; `meshpost radio scan` lists the radios in range."
    case .inUse: "Stop the other program: the radio supports one client at a time."
    case .notAllowed: "See `meshpost doctor bluetooth`: the service's user needs the D-Bus policy in deploy/."
    case .lost, .silent, .failed: "Nothing to do: the gateway retries automatically."
    }
  }
}
