// SPDX-License-Identifier: MIT

import BluetoothSession
import EventLoop
import ServiceManager

/// What a link tells its owner.
public enum LinkEvent {
  case up
  /// What came from a stream: frames with their serial framing, as they come.
  case bytes([UInt8])
  /// One whole frame, without framing.
  case frame([UInt8])
  /// Down, or not to be opened. The link can be opened again.
  case down(LinkError)
}

/// Something that carries the framed bytes of one radio. Opened and closed by its owner, who also decides when to try
/// again; events come on the loop, never from within `open` or `send`.
public protocol Link: AnyObject {
  /// For people: `serial:/dev/ttyACM0`.
  var name: String { get }
  var onEvent: (LinkEvent) -> Void { get set }
  func open()
  /// No event follows.
  func close()
  /// The radio behind the link did not answer: as `close`, and the link may draw its conclusions.
  func close(isBad: Bool)
  /// The daemon ends: as `close`, but what a successor can take over stays open.
  func end()
  /// What is not on disk yet should be, before more comes.
  var isFilling: Bool { get }
  /// All that came is on disk, but for the last so many bytes of it.
  func settled(pending: Int)
  /// What is sent is one frame without framing, and what comes are such frames.
  var carriesFrames: Bool { get }
  /// It goes on trying by itself after `down`, and tells of `up`.
  var healsItself: Bool { get }
  /// What it is doing just now, for people.
  var step: String? { get }
  /// How strongly the radio is heard, dBm, where there is such a thing.
  var rssi: Int16? { get }
  /// Which Bluetooth device it is for.
  var bluetoothTarget: BluetoothTarget? { get }
  /// Writes all of it, waiting inside for a slow line. A link that takes nothing for long goes down.
  func send(_ bytes: [UInt8])
  /// Serial: inverts DTR. Returns false where there is nothing to invert.
  func tryOtherLineSettings() -> Bool
  /// Calls `action` when trying again may be worth it before the wait is over (a device appeared). Nothing to watch:
  /// does nothing. Ends with `open` or `close`.
  func watchForReturn(_ action: @escaping () -> Void)
}

extension Link {
  public func close(isBad: Bool) { close() }
  public func end() { close() }
  public func settled(pending: Int) {}
  public var isFilling: Bool { false }
  public var carriesFrames: Bool { false }
  public var healsItself: Bool { false }
  public var step: String? { nil }
  public var rssi: Int16? { nil }
  public var bluetoothTarget: BluetoothTarget? { nil }
}

/// Why a link is down, in terms an operator can act on.
public enum LinkError: Error, Equatable, Sendable, CustomStringConvertible {
  case noSuchDevice(String)
  case notPermitted(String, group: String?)
  /// The user may, but what started us lets no device of this kind through: systemd's DeviceAllow.
  case kindNotAllowed(String)
  case inUse(String, by: String)
  case noDeviceFound
  /// What each serial device turned out to be; none is the radio that is wanted.
  case noRadioAmong([String])
  case severalRadios([String])
  /// Another one than the configuration's `radio.key` says.
  case wrongRadio(String)
  case unplugged(String)
  case stalled(String)
  case connection(String)
  case closedByPeer(String)
  /// Closed again and again, soon after it was opened: somebody else connects to it.
  case takenAway(String)
  case system(String)
  /// The radio behind the link is the trouble: it does not answer, or sends garbage.
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
      "another program connects to \(peer), which serves only the newest client: the gateway leaves it to that program for a while"
    case .system(let words): words
    case .radio(let words): words
    case .bluetooth(let trouble): trouble.description
    }
  }

  /// One sentence in the imperative, shown by `status`.
  public var remedy: String {
    switch self {
    case .noSuchDevice, .noDeviceFound: "Plug the radio in; the gateway detects it automatically."
    // Whoever is in the group root may do more than open a radio.
    case .notPermitted(let device, "root"?), .notPermitted(let device, nil):
      "Give this user access to \(device): install udev/70-meshpost.rules, or run `sudo chgrp dialout \(device)`."
    case .notPermitted(_, let group?): "Add this user to the group \(group) and start again."
    case .kindNotAllowed(let device):
      "Run `systemctl edit meshpost`, add DeviceAllow=\(device) rw below [Service], and restart it."
    case .inUse(_, let owner): "Stop \(owner): two programs would split the radio's bytes between them."
    case .noRadioAmong:
      "Plug the radio in, or set radio.link to its device; other devices are probed again in ten minutes."
    case .severalRadios: "Select one in the configuration: set radio.key to a prefix of its key, or set radio.link."
    case .wrongRadio: "Plug in the radio that matches radio.key, or change radio.key."
    case .closedByPeer:
      "If the radio was not restarted, another program connects to it: give that one the gateway's address (see [[proxy]])."
    case .takenAway:
      "Stop the other program, or have it connect to the gateway instead: [[proxy]] in the configuration shares the radio."
    case .unplugged, .stalled: "Nothing to do: the link comes back when the radio does."
    case .connection: "Check the radio's address, and that it is on; the gateway keeps trying."
    case .system: "Check the kernel's log (dmesg); the gateway keeps trying."
    case .bluetooth(let trouble): trouble.remedy
    case .radio:
      "Check that the device is a MeshCore companion radio (USB or Wi-Fi build) and not a repeater or another board."
    }
  }
}

/// Makes the link of an address.
public enum Links {
  /// `manager`: who keeps a serial port open across our restarts.
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
