// SPDX-License-Identifier: MIT

import BluetoothSession
import DBus
import Foundation
import TestSupport
import Testing

@testable import Transport

@Suite struct BlueZTests {
  @Test(arguments: [
    ("org.bluez.Error.InProgress", "In Progress", BluetoothFailure.inProgress),
    ("org.bluez.Error.AlreadyConnected", "Already Connected", .alreadyDone),
    ("org.bluez.Error.AlreadyExists", "Already Exists", .alreadyDone),
    ("org.bluez.Error.NotReady", "Resource Not Ready", .notReady),
    ("org.bluez.Error.Failed", "Blocked through rfkill", .blocked),
    ("org.bluez.Error.AuthenticationFailed", "Authentication Failed", .authentication),
    ("org.bluez.Error.AuthenticationRejected", "", .authentication),
    ("org.bluez.Error.NotPermitted", "Notify acquired", .inUse("Notify acquired")),
    ("org.bluez.Error.NotPermitted", "Read not permitted", .authentication),
    ("org.bluez.Error.Failed", "Operation failed with ATT error: 0x05", .authentication),
    ("org.bluez.Error.Failed", "Operation failed with ATT error: 0x0f", .authentication),
    ("org.bluez.Error.Failed", "Operation failed with ATT error: 0x01", .unknownObject),
    ("org.bluez.Error.Failed", "le-connection-abort-by-local", .aborted("le-connection-abort-by-local")),
    ("org.bluez.Error.Failed", "br-connection-canceled", .aborted("br-connection-canceled")),
    ("org.bluez.Error.Failed", "Software caused connection abort", .aborted("Software caused connection abort")),
    ("org.bluez.Error.Failed", "br-connection-already-connected", .alreadyDone),
    ("org.bluez.Error.ConnectionAttemptFailed", "Page Timeout", .aborted("Page Timeout")),
    ("org.bluez.Error.DoesNotExist", "Does Not Exist", .unknownObject),
    ("org.freedesktop.DBus.Error.UnknownObject", "Method \"Connect\" … doesn't exist", .unknownObject),
    ("org.freedesktop.DBus.Error.ServiceUnknown", "", .unknownObject),
    ("org.freedesktop.DBus.Error.AccessDenied", "Rejected send message", .notAllowed),
    ("org.freedesktop.DBus.Error.NoReply", "", .timedOut),
    ("org.bluez.Error.Failed", "Something new", .other("Something new")),
    ("org.bluez.Error.New", "", .other("org.bluez.Error.New")),
  ]) func `an error of BlueZ is classified by its consequence`(
    _ name: String, _ words: String, _ failure: BluetoothFailure
  ) {
    #expect(BlueZ.failure(.refused(name: name, message: words)) == failure)
  }

  @Test func `a device is a radio by its service or its name, and changes are applied one by one`() throws {
    let values: BusValue = .options([
      ("Address", .string("C0:FF:EE:00:00:01")), ("Adapter", .objectPath("/org/bluez/hci0")), ("Paired", .bool(true)),
      ("UUIDs", .array(element: "s", [.string(RadioService.service.uppercased())])), ("RSSI", .int16(-61)),
    ])
    var facts = try #require(BlueZ.deviceFacts("/org/bluez/hci0/dev_1", values))
    #expect(facts.isRadio && facts.isPaired && !facts.isConnected && facts.rssi == -61)
    BlueZ.apply(.options([("Connected", .bool(true)), ("Name", .string("x"))]), to: &facts)
    #expect(facts.isConnected && facts.isPaired && facts.name == "x")
    // Properties with a wrong type change nothing.
    BlueZ.apply(.options([("Connected", .string("no")), ("RSSI", .string("")), ("UUIDs", .byte(1))]), to: &facts)
    #expect(facts.isConnected && facts.rssi == -61)
    #expect(BlueZ.deviceFacts("/x", .options([("Address", .string("A"))])) == nil)
    #expect(BlueZ.deviceFacts("/x", .byte(1)) == nil)
    let named = BlueZ.deviceFacts(
      "/x", .options([("Address", .string("A")), ("Adapter", .objectPath("/y")), ("Name", .string("MeshCore-Hill"))]))
    #expect(named?.isRadio == true)
    #expect(BluetoothTarget.name("Hill").matches(try #require(named)))
    // Compared by bytes: an accent at the beginning of the name does not hide a radio, and another form of é is another name.
    #expect(
      BlueZ.deviceFacts(
        "/x",
        .options([("Address", .string("A")), ("Adapter", .objectPath("/y")), ("Name", .string("MeshCore-\u{301}x"))]))?
        .isRadio == true)
    facts.name = "MeshCore-caf\u{E9}"
    #expect(BluetoothTarget.name("caf\u{E9}").matches(facts) && !BluetoothTarget.name("cafe\u{301}").matches(facts))
    #expect(!BluetoothTarget.name("MeshCore-cafe\u{301}").matches(facts))
  }

  @Test func `only Bluetooth's rfkill switches are read`() throws {
    let scratch = Scratch()
    func write(_ number: Int, _ type: String, _ soft: String, _ hard: String) throws {
      let folder = scratch.folder.appending(path: "rfkill\(number)")
      try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
      for (name, text) in [("type", type), ("soft", soft), ("hard", hard), ("name", "switch\(number)")] {
        try (text + "\n").write(to: folder.appending(path: name), atomically: true, encoding: .utf8)
      }
    }
    try write(0, "wlan", "1", "0")
    try write(1, "bluetooth", "1", "0")
    let blocks = Rfkill.bluetooth(root: scratch.folder.path())
    #expect(blocks == [Rfkill.Block(name: "switch1", isSoft: true, isHard: false)])
    #expect(Rfkill.bluetooth(root: "/nowhere").isEmpty)
    let device = scratch.write("rfkill", "")
    #expect(Rfkill.unblockBluetooth(device: device))
    #expect(try Data(contentsOf: URL(filePath: device)) == Data([0, 0, 0, 0, 2, 3, 0, 0]))
    #expect(!Rfkill.unblockBluetooth(device: "/nowhere"))
  }
}
