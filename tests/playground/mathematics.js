/* What the playground's mathematics makes of a fixture, for the test to compare with the library's. */

const plain = (weights) =>
  Object.fromEntries(Object.entries(weights).filter(([name]) => name !== "all").map(([name, part]) => [name, [...part]]));

function results({ network: options, parameters, x, labels, steps, rate }) {
  const network = new Network(options), pass = new Pass(network, labels.length, { gradients: true });
  for (const [name, values] of Object.entries(parameters)) network.weights[name].set(values);
  network.update();
  pass.forward(x);
  const found = { loss: pass.loss(labels), logits: [...pass.logits], states: [...pass.states] };
  found.gradient = plain(pass.backward(x));
  found.norms = [...layerNorms(pass.gradient, network.nLayers)];
  if (network.activation === "tanh" && network.residual) found.printed = plain(pass.printedBackward(x));
  found.memory = [...memoryWeights(network.order, network.nLayers)];
  const adam = new Adam(network.weights.all.length, rate);
  found.losses = [];
  for (let step = 0; step < steps; step++) {
    pass.forward(x);
    found.losses.push(pass.loss(labels));
    pass.backward(x);
    adam.step(network.weights.all, pass.gradient.all);
    network.update();
  }
  found.trained = plain(network.weights);
  return found;
}
