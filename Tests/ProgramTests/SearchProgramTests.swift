// SPDX-License-Identifier: MIT

import Foundation
import Glibc
import JSON
import TestSupport
import Testing

extension WholeProgramTests {
  @Suite struct Finding {
    /// A gateway with 40 messages and 20 nodes: 30 messages of `Walker` on a channel, 10 of nodes.
    private func filled() throws -> Rig {
      let rig = try Rig()
      try rig.startRadio(["--contacts", "20", "--queue", "1000"])
      try rig.startGateway()
      try rig.waitForSync()
      rig.radio?.write("inject r0 50 40")
      try untilTrue("40 messages") { try rig.status()?["store"]?["messages"]?.integer == 40 }
      return rig
    }

    @Test func `messages and nodes are exported completely, in forms that other programs read`() throws {
      let rig = try filled()
      func export(_ what: String, _ format: String) throws -> String {
        let file = rig.scratch.location("export.\(format)")
        let (code, lines) = try rig.meshpost("export", what, "--format", format, "--output", file)
        #expect(code == 0, "\(lines)")
        return file
      }
      try read(
        "import sys,csv,re\nrows=list(csv.DictReader(open(sys.argv[1],newline='')))\n"
          + "assert len(rows)==40 and rows[0]['text']=='message 1' and rows[3]['sender_name'], rows[:4]",
        try export("messages", "csv"))
      try read(
        "import sys,json\nrows=[json.loads(l) for l in open(sys.argv[1])]\nassert len(rows)==40",
        try export("messages", "jsonl"))
      try read(
        "import sys,json\nf=json.load(open(sys.argv[1]))['features']\n"
          + "assert len(f)>=20 and all(46<p['geometry']['coordinates'][1]<48 for p in f), f[:2]",
        try export("contacts", "geojson"))
      try read(
        "import sys,xml.etree.ElementTree as e\n"
          + "w=e.parse(sys.argv[1]).getroot().findall('{http://www.topografix.com/GPX/1/1}wpt')\n"
          + "assert len(w)>=20 and w[0][0].text is not None, len(w)",
        try export("contacts", "gpx"))
      #expect(try rig.meshpost("export", "messages", "--format", "gpx").code == EX_USAGE)
      #expect(try rig.meshpost("export", "messages", "--output", "/nowhere/x").code == EX_IOERR)
    }

    /// Checks the file with Python's own readers.
    private func read(_ script: String, _ file: String) throws {
      let program = try Program("/usr/bin/env", ["python3", "-c", script, file])
      #expect(try program.ended() == 0, "\(program.lines)")
    }
  }
}
