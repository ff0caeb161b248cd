// SPDX-License-Identifier: MIT

import BluetoothSession
import Companion
import EventLoop
import Glibc
import ServiceManager

/// An event of a link, for its owner.
public enum LinkEvent {
  /// Bytes that an earlier process had read and not stored; comes before `up`. `continues`: the rest of an incomplete frame follows on this link.
  case leftOver([UInt8], continues: Bool)
  case up
  /// Bytes of a stream, framed as on a serial line.
  case bytes([UInt8])
  /// One whole frame, without framing.
  case frame([UInt8])
  /// The link is down, or could not be opened. It can be opened again.
  case down(LinkError)
}

/// Transfers the framed bytes of one radio. Its owner opens and closes it, and decides on retries. Events come on the
/// loop, never from within `open` or `send`.
public protocol Link: AnyObject {
  /// To show: `serial:/dev/ttyACM0`.
  var name: String { get }
  var onEvent: (LinkEvent) -> Void { get set }
  func open()
  /// Closes the link. No event follows.
  func close()
  /// The radio behind the link did not answer. Closes the link, which may use this fact when it opens again.
  func close(isBad: Bool)
  /// The daemon ends. Closes the link, except descriptors that the next process can take over.
  func end()
  /// Received data should be stored before more is read.
  var isFilling: Bool { get }
  /// Everything received is on disk, except the last `pending` bytes.
  func settled(pending: Int)
  /// `send` and the events carry single frames without framing.
  var carriesFrames: Bool { get }
  /// The time limit for a frame from its first byte to its last.
  var frameTimeout: Duration { get }
  /// The link reconnects by itself after `down`, and reports `up`.
  var healsItself: Bool { get }
  /// The current activity, to show.
  var step: String? { get }
  /// The signal strength of the radio in dBm, if the link has one.
  var rssi: Int16? { get }
  /// The Bluetooth device of this link.
  var bluetoothTarget: BluetoothTarget? { get }
  /// Writes all bytes, and buffers them on a slow line. A link that accepts nothing for long goes down.
  func send(_ bytes: [UInt8])
  /// Serial: inverts DTR. Returns false if the link has no DTR.
  func tryOtherLineSettings() -> Bool
  /// Calls `action` when a retry is worthwhile before the wait is over (a device appeared). Does nothing if there is
  /// nothing to watch. Ends with `open` or `close`.
  func watchForReturn(_ action: @escaping () -> Void)
}

extension Link {
  public func close(isBad: Bool) { close() }
  public func end() { close() }
  public func settled(pending: Int) {}
  public var isFilling: Bool { false }
  public var carriesFrames: Bool { false }
  public var frameTimeout: Duration { SerialDecoder.frameTimeout }
  public var healsItself: Bool { false }
  public var step: String? { nil }
  public var rssi: Int16? { nil }
  public var bluetoothTarget: BluetoothTarget? { nil }
  public func tryOtherLineSettings() -> Bool { false }
  public func watchForReturn(_ action: @escaping () -> Void) {}
}

/// Why a link is down, in terms an operator can act on.
public enum LinkError: Error, Equatable, Sendable, CustomStringConvertible {
  case noSuchDevice(String)
  case notPermitted(String, group: String?)
  /// The user has permission, but the service does not: systemd's DeviceAllow excludes this kind of device.
  case kindNotAllowed(String)
  case inUse(String, by: String)
  case noDeviceFound
  /// The result for each serial device; none is the wanted radio.
  case noRadioAmong([String])
  case severalRadios([String])
  /// The radio's key differs from `radio.key` of the configuration.
  case wrongRadio(String)
  case unplugged(String)
  case stalled(String)
  case connection(String)
  case closedByPeer(String)
  /// The connection was repeatedly closed soon after it was opened: another client connects to the radio, or a bridge drops connections.
  case takenAway(String)
  case system(String)
  /// The radio behind the link is at fault: it does not answer, or sends garbage.
  case radio(String)
  case bluetooth(BluetoothTrouble)

  public var description: String {
    switch self {
    case .noSuchDevice(let device): "\(device) does not exist"
    case .notPermitted(let device, _): "no permission to open \(device)"
    case .kindNotAllowed(let device): "the service is not allowed to open devices such as \(device)"
    case .inUse(let device, let owner): "\(device) is in use by \(owner)"
    case .noDeviceFound: "no serial device was found"
    case .noRadioAmong(let devices): "none of the serial devices is the radio: \(devices.joined(separator: "; "))"
    case .severalRadios(let devices): "there are several radios: \(devices.joined(separator: "; "))"
    case .wrongRadio(let words): words
    case .unplugged(let device): "\(device) was unplugged"
    case .stalled(let device): "\(device) does not accept data"
    case .connection(let words): words
    case .closedByPeer(let peer): "\(peer) closed the connection"
    case .takenAway(let peer):
      "\(peer) closes each connection: another program connects to it, and it serves only the newest client, or what is between drops connections. "
        + "The gateway leaves it alone for a while"
    case .system(let words): words
    case .radio(let words): words
    case .bluetooth(let trouble): trouble.description
    }
  }

  /// The name of this process's user.
  private static var user: String { getpwuid(geteuid()).map { String(cString: $0.pointee.pw_name) } ?? "USER" }

  /// One sentence in the imperative, shown by `status`.
  public var remedy: String {
    switch self {
    case .noSuchDevice, .noDeviceFound: "Plug the radio in; the gateway detects it automatically."
    // Membership of the group root grants more than access to a radio.
    case .notPermitted(let device, "root"?), .notPermitted(let device, nil):
      "Give this user access to \(device): install udev/70-meshpost.rules, or run `sudo chgrp dialout \(device)`."
    case .notPermitted(_, let group?):
      "Run `sudo adduser \(Self.user) \(group)`, then log out and in again, or restart the service."
    case .kindNotAllowed(let device):
      "Run `systemctl edit meshpost`, add DeviceAllow=\(device) rw below [Service], and restart it."
    case .inUse(_, let owner): "Stop \(owner): two programs would split the radio's bytes between them."
    case .noRadioAmong:
      "Plug the radio in, or set radio.link to its device; other devices are probed again in ten minutes."
    case .severalRadios: "Select one in the configuration: set radio.key to a prefix of its key, or set radio.link."
    case .wrongRadio: "Plug in the radio that matches radio.key, or change radio.key."
    case .closedByPeer:
      "If the radio was not restarted, another program connects to it (give that one the gateway's address, see [[proxy]]), or a bridge drops the link."
    case .takenAway:
      "Stop the other program, or have it connect to the gateway instead ([[proxy]] in the configuration shares the radio); without one, "
        + "check the bridge or the network to the radio."
    case .unplugged, .stalled: "Nothing to do: the link comes back when the radio does."
    case .connection: "Check the radio's address, and that it is on; the gateway keeps trying."
    case .system: "Check the kernel's log (dmesg); the gateway keeps trying."
    case .bluetooth(let trouble): trouble.remedy
    case .radio:
      "Check that the device is a MeshCore companion radio (USB or Wi-Fi build) and not a repeater or another board."
    }
  }
}

/// Creates the link for an address.
public enum Links {
  /// `manager`: keeps a serial port open across restarts of the daemon.
  public static func link(
    to address: LinkAddress, bluetooth: BluetoothOptions = .init(), key: String? = nil, manager: ServiceManager? = nil,
    on loop: EventLoop, log: Log
  ) -> any Link {
    switch address {
    case .serial(let location, let baud):
      SerialLink(.named(location), baud: baud, kept: manager.map { KeptPort($0, log: log) }, on: loop)
    case .auto(let baud):
      SerialLink(.anyRadio(key: key), baud: baud, kept: manager.map { KeptPort($0, log: log) }, on: loop)
    case .tcp(let host, let port): TCPLink(host: host, port: port, on: loop)
    case .bluetooth(let target): BluetoothLink(target, bluetooth, on: loop, log: log)
    }
  }
}
