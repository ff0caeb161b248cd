// SPDX-License-Identifier: MIT

import ArgumentParser
import ControlShapes
import JSON

extension RadioCommand {
  struct Advert: ExchangeCommand {
    static let configuration = CommandConfiguration(
      abstract: "Send the radio's signed advert.",
      discussion: """
        A node that has not received an advert of this radio does not know its key: it cannot send direct messages to the \
        radio or read those from it. The radio does not advertise by itself. Without --flood, only direct neighbours receive \
        the advert; with --flood the whole mesh does, which uses air time everywhere: use it after setup, and after a change \
        of name or position. Within a minute of the last one it is refused, unless the name or position has \
        changed. `radio.advert_every_h` in the configuration sends adverts to direct neighbours regularly.
        """)
    @OptionGroup var connection: Connection
    @Flag(help: "Flood the advert through the whole mesh, in the radio's default region if it has one.") var flood =
      false

    static let offer =
      "Other nodes learn this from an advert: meshpost radio advert (neighbours), meshpost radio advert --flood (the mesh)"

    var exchange: Exchange {
      .post(
        "/v1/radio/advert", body: .object(["flood": .bool(flood)]),
        done: flood ? "sent an advert to the mesh" : "sent an advert to direct neighbours")
    }
  }
}

extension Show {
  /// A line of `status` about a missing or outdated advert of the radio: nodes without the advert cannot write to this radio.
  static func advert(_ radio: JSONValue) {
    guard radio[Shape.LinkState().state] == "up", let advert = radio[Shape.LinkState().advert] else { return }
    if advert[Shape.Advert().at] == nil {
      print("          not advertised by this gateway; nodes that lack it cannot send to it: meshpost radio advert")
    } else if advert[Shape.Advert().current] == false {
      print("          name or position changed since the last advert: meshpost radio advert")
    }
  }
}
