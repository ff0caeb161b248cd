// SPDX-License-Identifier: MIT

/// An operation of BlueZ; one at a time. Strings are object paths.
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

  /// Its name in `status`.
  public var step: String {
    switch self {
    case .readObjects: "reading BlueZ's objects"
    case .unblock: "unblocking the adapter"
    case .power(_, let on): on ? "switching the adapter on" : "switching the adapter off and on"
    case .startScan: "scanning"
    case .stopScan: "stopping the scan"
    case .connect: "connecting"
    case .pair: "pairing"
    case .cancelPairing: "cancelling a pairing"
    case .trust: "trusting the radio"
    case .disconnect: "disconnecting"
    case .remove: "removing the radio to pair it again"
    case .openNotifications: "subscribing"
    case .openWrites: "opening the write channel"
    }
  }

  /// The timeout. BlueZ itself stops connecting after 20 to 40 s, pairing after 30 to 60.
  public var limit: Duration {
    switch self {
    case .pair: .seconds(75)
    case .connect: .seconds(45)
    case .openNotifications, .openWrites, .disconnect, .remove, .power: .seconds(20)
    case .readObjects, .unblock, .startScan, .stopScan, .trust, .cancelPairing: .seconds(10)
    }
  }
}

/// The result of an operation.
public enum BluetoothOutcome: Equatable, Sendable {
  case done
  /// A channel for frames is open; the MTU, 0 if unknown.
  case opened(mtu: Int)
  case failed(BluetoothFailure)
}

/// Actions for the shell.
public enum BluetoothAction: Equatable, Sendable {
  case perform(UInt64, BluetoothOperation)
  /// Frames can flow.
  case up(mtu: Int)
  case down(BluetoothTrouble)
  /// Close the descriptors that `openNotifications` and `openWrites` opened.
  case closeWays
  /// A log line about the reaction to a failure.
  case note(String)
}
