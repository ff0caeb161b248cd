// SPDX-License-Identifier: MIT

import JSON
import Testing

extension WholeProgramTests {
  /// Radios that know each other only by adverts, as firmware has it.
  @Suite struct Adverts {
    private func advert(_ rig: Rig) throws -> JSONValue? { try rig.status()?["radio"]?["advert"] }

    @Test func `nobody knows a radio that was not advertised; that is said, and one advert mends it`() throws {
      let rig = try Rig()
      try rig.startRadio(isKnown: false)
      rig.writeGatewayConfiguration(extra: "[messaging]\nattempts = 1")
      try rig.startGateway()
      try rig.waitForSync()
      #expect(try advert(rig)?["at"] == nil)
      #expect(try rig.meshpost("status").lines.contains { $0.contains("meshpost radio advert") })
      #expect(try rig.meshpost("doctor").lines.contains { $0.contains("WARN  advert") })
      rig.radio?.write("advert r1")
      try untilTrue("r1 to be heard") { try rig.meshpost("contacts").lines.contains { $0.contains(" r1 ") } }
      let lost = try rig.meshpost("send", "r1", "who am I?", "--id", "lost", "--wait")
      #expect(lost.code == 75 && lost.lines.contains { $0.contains("no_acknowledgement") }, "\(lost.lines)")
      #expect(try rig.meshpost("radio", "advert").lines == ["sent an advert to direct neighbours"])
      let delivered = try rig.meshpost("retry", "lost", "--wait")
      #expect(delivered.code == 0, "\(delivered.lines)")
      rig.radio?.write("dm r1 r0 now I know you")
      try untilTrue("the answer") { try rig.meshpost("messages").lines.contains { $0.contains("now I know you") } }
      let sent = try advert(rig)
      #expect(sent?["at"]?.integer != nil && sent?["flood"]?.bool == false && sent?["current"]?.bool == true)
      #expect(try rig.meshpost("status").lines.contains { $0.contains("meshpost radio advert") } == false)

      let renamed = try rig.meshpost("radio", "set", "name=Hilltop")
      #expect(renamed.code == 0 && renamed.lines.last?.contains("meshpost radio advert") == true, "\(renamed.lines)")
      #expect(try advert(rig)?["current"]?.bool == false, "others know it under its old name")
      #expect(try rig.meshpost("radio", "advert", "--flood").code == 0)
      #expect(try advert(rig)?["current"]?.bool == true)
      #expect(try advert(rig)?["flood"]?.bool == true)
    }

    @Test func `where it is configured a new radio is advertised once by itself, and not again at a restart`() throws {
      let rig = try Rig()
      try rig.startRadio(isKnown: false)
      rig.writeGatewayConfiguration()
      try rig.addToGatewayConfiguration("radio", "advert_when_new = true\nadvert_every_h = 24")
      try rig.startGateway()
      try rig.gateway?.line(with: "advertised to its direct neighbours")
      rig.radio?.write("advert r1")
      try untilTrue("r1 to be heard") { try rig.meshpost("contacts").lines.contains { $0.contains(" r1 ") } }
      #expect(try rig.meshpost("send", "r1", "you know me", "--wait").code == 0)
      let first = try advert(rig)?["at"]?.integer
      #expect(first != nil)
      rig.gateway?.kill9()
      try rig.startGateway()
      try rig.waitForSync()
      #expect(try advert(rig)?["at"]?.integer == first)
      #expect(try rig.meshpost("doctor").lines.contains { $0.contains("ok    advert: within a day") })
    }
  }
}
