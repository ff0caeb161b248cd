// SPDX-License-Identifier: MIT

import ArgumentParser
import JSON

extension RadioCommand {
  struct Advert: ParsableCommand {
    static let configuration = CommandConfiguration(
      abstract: "Tell others who this radio is: send its signed advert.",
      discussion: """
        Who has not heard an advert of this radio does not know its key: they cannot write to it, and cannot read what it \
        writes to them. A radio adverts only when it is told to. Without --flood its direct neighbours hear it; with it the \
        whole mesh, which costs everybody air time: after setting up, and after a change of name or position. \
        `radio.advert_every_h` in the configuration does the former by itself.
        """)
    @OptionGroup var connection: Connection
    @Flag(help: "Through the whole mesh, in the radio's default region where it has one.") var flood = false

    static let offer =
      "Others see that when they hear an advert: meshpost radio advert (its neighbours), meshpost radio advert --flood (the mesh)"

    func run() throws {
      let body = JSONValue.object([("flood", .bool(flood))]).bytes
      let answer = try ControlClient(connection).post("/v1/radio/advert", body: body)
      guard !connection.json else { return print(answer.text) }
      print(flood ? "the radio is advertised through the mesh" : "the radio is advertised to its direct neighbours")
    }
  }
}

extension Show {
  /// A line of `status`, unless all is well: who does not know this radio cannot write to it.
  static func advert(_ radio: JSONValue) {
    guard radio["state"]?.string == "up", let advert = radio["advert"] else { return }
    if advert["at"] == nil {
      print("          not advertised yet, so nobody knows it: meshpost radio advert")
    } else if advert["current"]?.bool == false {
      print("          name or position have changed since it was advertised: meshpost radio advert")
    }
  }
}
