// SPDX-License-Identifier: MIT

import JSON
import Testing

extension WholeProgramTests {
  /// Radios that know each other only by adverts, as with real firmware.
  @Suite struct Adverts {
    private func advert(_ rig: Rig) throws -> JSONValue? { try rig.status()?["radio"]?["advert"] }

    @Test func `a radio without an advert is reported until it is advertised, and again after a new name`() throws {
      let rig = try Rig()
      try rig.startRadio(isKnown: false)
      try rig.startGateway()
      try rig.waitForSync()
      #expect(try advert(rig)?["at"] == nil)
      #expect(try rig.meshpost("status").lines.contains { $0.contains("meshpost radio advert") })
      #expect(try rig.meshpost("doctor").lines.contains { $0.contains("WARN  advert") })
      #expect(try rig.meshpost("radio", "advert").lines == ["sent an advert to direct neighbours"])
      rig.radio?.write("advert r1")
      try untilTrue("r1 to be heard") { try rig.meshpost("contacts").lines.contains { $0.contains(" r1 ") } }
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
  }
}
