// SPDX-License-Identifier: MIT

/// One thing that is asked of BlueZ; never two at once. Texts are object paths.
public enum BluetoothOperation: Equatable, Sendable {
  case readObjects
  case unblock
  case power(adapter: String, on: Bool)
  /// `filtered`: only devices that advertise the UART service.
  case startScan(adapter: String, filtered: Bool)
  case stopScan(adapter: String)
  case connect(device: String)
  case pair(device: String)
  case cancelPairing(device: String)
  case trust(device: String)
  case disconnect(device: String)
  case remove(adapter: String, device: String)
  case openNotifications(tx: String)
  case openWrites(rx: String)

  /// What `status` calls it.
  public var step: String {
    switch self {
    case .readObjects: "asking BlueZ what there is"
    case .unblock: "lifting the adapter's block"
    case .power(_, let on): on ? "switching the adapter on" : "switching the adapter off and on"
    case .startScan: "scanning"
    case .stopScan: "ending the scan"
    case .connect: "connecting"
    case .pair: "pairing"
    case .cancelPairing: "ending a pairing"
    case .trust: "trusting the radio"
    case .disconnect: "disconnecting"
    case .remove: "removing the radio, to pair it anew"
    case .openNotifications: "subscribing"
    case .openWrites: "opening the way to the radio"
    }
  }

  /// Seconds after which it counts as failed. BlueZ itself gives up connecting after 20 to 40 s, pairing after 30 to 60.
  public var limit: Duration {
    switch self {
    case .pair: .seconds(75)
    case .connect: .seconds(45)
    case .openNotifications, .openWrites, .disconnect, .remove, .power: .seconds(20)
    case .readObjects, .unblock, .startScan, .stopScan, .trust, .cancelPairing: .seconds(10)
    }
  }
}

/// What an operation brought.
public enum BluetoothOutcome: Equatable, Sendable {
  case done
  /// A way for frames is open; the MTU, 0 when it is not known.
  case opened(mtu: Int)
  case failed(BluetoothFailure)
}

/// What the shell has to do.
public enum BluetoothAction: Equatable, Sendable {
  case perform(UInt64, BluetoothOperation)
  /// Frames can flow.
  case up(mtu: Int)
  case down(BluetoothTrouble)
  /// Close what `openNotifications` and `openWrites` opened.
  case closeWays
  /// Worth a line in the log: what is done about a trouble.
  case note(String)
}
