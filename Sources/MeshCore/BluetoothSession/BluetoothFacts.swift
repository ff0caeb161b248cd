// SPDX-License-Identifier: MIT

/// Properties of a Bluetooth adapter. Source: BlueZ, `org.bluez.Adapter1`.
public struct AdapterFacts: Equatable, Sendable {
  /// The object path, `/org/bluez/hci0`.
  public var path: String
  public var address: String
  public var isPowered: Bool
  /// Switched off by rfkill: it cannot be powered until rfkill allows it.
  public var isBlocked = false

  public init(path: String, address: String, isPowered: Bool) {
    self.path = path
    self.address = address
    self.isPowered = isPowered
  }
}

/// Properties of a device. Source: BlueZ, `org.bluez.Device1`.
public struct DeviceFacts: Equatable, Sendable {
  /// The object path, `/org/bluez/hci0/dev_C0_FF_EE_00_00_01`.
  public var path: String
  /// The path of the adapter that knows it.
  public var adapter: String
  /// `C0:FF:EE:00:00:01`
  public var address: String
  public var name: String
  public var isPaired: Bool
  public var isTrusted: Bool
  public var isConnected: Bool
  /// The services are known, so the characteristics exist as objects.
  public var isResolved: Bool
  /// It has the UART service, or its name begins as the firmware's does.
  public var isRadio: Bool
  /// dBm; `nil` while the device is not heard.
  public var rssi: Int16?

  public init(
    path: String, adapter: String, address: String, name: String = "", isPaired: Bool = false, isTrusted: Bool = false,
    isConnected: Bool = false, isResolved: Bool = false, isRadio: Bool = false, rssi: Int16? = nil
  ) {
    self.path = path
    self.adapter = adapter
    self.address = address
    self.name = name
    self.isPaired = isPaired
    self.isTrusted = isTrusted
    self.isConnected = isConnected
    self.isResolved = isResolved
    self.isRadio = isRadio
    self.rssi = rssi
  }
}

/// Selects the device to connect to.
public enum BluetoothTarget: Equatable, Sendable, CustomStringConvertible {
  case address(String)
  /// The advertised name, or the part of it after `MeshCore-`.
  case name(String)
  /// The only radio that is bonded or in range.
  case only

  /// The beginning of the names that the firmware advertises (docs/protocol/companion.md § 1.3).
  public static let namePrefix = "MeshCore-"

  public func matches(_ device: DeviceFacts) -> Bool {
    switch self {
    case .address(let address): device.address.uppercased() == address.uppercased()
    // Compared by bytes: names that only look the same belong to different devices.
    case .name(let name):
      device.name.utf8.elementsEqual(name.utf8) || device.name.utf8.elementsEqual((Self.namePrefix + name).utf8)
    case .only: device.isRadio
    }
  }

  public var description: String {
    switch self {
    case .address(let address): address
    case .name(let name): name
    case .only: "a MeshCore radio"
    }
  }
}

/// The UART service of the radio and its characteristics. Source: firmware `SerialBLEInterface.cpp`.
public enum RadioService {
  public static let service = "6e400001-b5a3-f393-e0a9-e50e24dcca9e"
  /// Written: frames to the radio.
  public static let rx = "6e400002-b5a3-f393-e0a9-e50e24dcca9e"
  /// Notified: frames from the radio.
  public static let tx = "6e400003-b5a3-f393-e0a9-e50e24dcca9e"
  /// The longest frame is 176 bytes; a notification or write carries three bytes less than the MTU.
  public static let neededMTU = 179
}
