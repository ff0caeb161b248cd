// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import ControlShapes
import JSON

struct NodeRegion: ExchangeCommand {
  static let configuration = CommandConfiguration(
    commandName: "region", abstract: "Show or set the region for messages to a node.",
    discussion: """
      A message's own region (meshpost send --region) comes before it, and without either the radio's default applies: \
      meshpost radio set flood-scope=NAME.
      """)
  @OptionGroup var connection: Connection
  @Argument(help: "The node.", completion: Completing.nodes) var node: String
  @Argument(help: "A region's name; `none`; `default` for the radio's default.") var region: String?

  var exchange: Exchange {
    guard let region else { return .get("/v1/resolve".with(["name": node]), show) }
    return .post("/v1/node/region", body: .object(["node": .string(node), "region": .string(region)]), show)
  }

  private func show(_ contact: JSONValue) {
    let place = contact[Shape.Contact().region].map(Show.region) ?? "the radio's default region"
    print("messages to \(node) go to \(place)")
  }
}

struct NodeRegions: ExchangeCommand {
  static let configuration = CommandConfiguration(
    commandName: "regions", abstract: "Ask a repeater which regions it carries; it needs no login.")
  @OptionGroup var connection: Connection
  @Argument(help: "The repeater.", completion: Completing.nodes) var node: String

  var exchange: Exchange { .asking("regions", node) { [Show.carried($0[Shape.Carried().carries])] } }
}

/// `meshpost radio regions`.
struct RadioRegions: ExchangeCommand {
  static let configuration = CommandConfiguration(
    commandName: "regions", abstract: "Ask the repeaters around which regions they carry.",
    discussion: """
      It asks repeaters of the radio's contacts that were heard within a day, 8 at most, one after the other, within the air \
      time for background work. `meshpost node regions` asks one.
      """)
  @OptionGroup var connection: Connection

  var exchange: Exchange {
    .post("/v1/radio/regions", limit: 600) { answer in
      let row = Shape.RegionsOfRepeater()
      let repeaters = answer[Shape.RegionsAround().repeaters]
      if repeaters.isEmpty { print("no repeater of the radio's contacts was heard within a day") }
      for one in repeaters {
        let words = one[row.error].map { Styled(Show.clean($0)) } ?? Show.carried(one[row.carries])
        print(styled: "\(Show.clean(one[row.name]).padding(26))\(words)")
      }
    }
  }
}

extension Show {
  static func carried(_ names: [String]) -> Styled {
    guard !names.isEmpty else { return "carries no floods" }
    let regions = names.filter { $0 != "*" }.map { clean($0) }
    return Styled((regions + (names.contains("*") ? ["floods without a region"] : [])).joined(separator: ", "))
  }
}
